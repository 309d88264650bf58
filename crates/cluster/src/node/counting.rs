//! A node's part in counting what files take: [`crate::counting`] says how.

use super::{Effect, Node};
use crate::counting::{Act, Report, Said};
use crate::objects::ObjectsId;
use crate::peer::Message;
use crate::volumes::copy::Ask;
use isonomia_units::ServerId;

impl Node {
    /// The store tells something.
    pub(super) fn told_of_counts(&mut self, told: Report, effects: &mut Vec<Effect>) {
        let own = self.process.server;
        match told {
            Report::Want { round, files } => {
                let ask = Ask { token: self.process.instance.token, number: round };
                for (server, files) in self.errands.counts.begin(round, files) {
                    if server == own {
                        self.emit(Effect::Counting(Act::Count { asker: own, ask, files }), effects);
                    } else {
                        self.send(server, Message::Counting(Said::Ask { ask, files }), effects);
                    }
                }
            }
            Report::Counted { asker, ask, counted } if asker == own => self.counted(own, ask, counted, effects),
            Report::Counted { asker, ask, counted } => {
                self.send(asker, Message::Counting(Said::Counted { ask, counted }), effects);
            }
        }
    }

    /// Another server says something.
    pub(super) fn heard_of_counts(&mut self, from: ServerId, said: Said, effects: &mut Vec<Effect>) {
        match said {
            Said::Ask { ask, files } => self.emit(Effect::Counting(Act::Count { asker: from, ask, files }), effects),
            Said::Counted { ask, counted } => self.counted(from, ask, counted, effects),
        }
    }

    fn counted(&mut self, from: ServerId, ask: Ask, counted: Vec<(ObjectsId, u64)>, effects: &mut Vec<Effect>) {
        if ask.token != self.process.instance.token {
            return;
        }
        let counted = self.errands.counts.answered(from, ask.number, counted);
        if !counted.is_empty() {
            self.emit(Effect::Counting(Act::Keep { round: ask.number, counted }), effects);
        }
    }
}
