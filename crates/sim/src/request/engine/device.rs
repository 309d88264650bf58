//! What a request does from its turn until the device has served it.

use super::super::events::Event;
use super::super::processors::Processors;
use super::super::{Channels, Device};
use super::{Engine, jittered};
use isonomia_units::Nanos;

impl Engine<'_> {
    /// The turn of a request has come: it needs a processor, if these are simulated, and then the device.
    pub(super) fn begin(&mut self, now: Nanos, target: u32, stream: u32) {
        let server = self.scenario.targets[target as usize].server;
        match &self.scenario.processors {
            Some(processors) if self.processors[server].take(processors, (target, stream)) => {
                self.process(now, processors, target, stream);
            }
            Some(_) => {}
            None => self.give(now, target, stream),
        }
    }

    fn process(&mut self, now: Nanos, processors: &Processors, target: u32, stream: u32) {
        let time = processors.time(self.phase_of(stream).bytes());
        self.schedule(now + time, Event::Processed { target, stream });
    }

    /// A processor is done with a request.
    pub(super) fn processed(&mut self, now: Nanos, target: u32, stream: u32) {
        let server = self.scenario.targets[target as usize].server;
        if let Some(processors) = &self.scenario.processors
            && let Some((target, stream)) = self.processors[server].release()
        {
            self.process(now, processors, target, stream);
        }
        self.give(now, target, stream);
    }

    /// The device is given a request.
    fn give(&mut self, now: Nanos, target: u32, stream: u32) {
        self.streams[stream as usize].begun_at = now;
        let state = &mut self.targets[target as usize];
        match &self.scenario.targets[target as usize].device {
            Device::Lanes(lanes) => {
                let service = jittered(self.streams[stream as usize].cost, lanes.jitter, &mut state.random);
                self.schedule(now + service, Event::Finish { target, stream });
            }
            Device::Channels(channels) => {
                if state.learners.is_some() {
                    state.dispatcher.enter(now, self.streams[stream as usize].id);
                }
                let transit = channels.times[self.phase_of(stream).access().index()].transit;
                if transit > Nanos::ZERO {
                    self.schedule(now + transit, Event::Reach { target, stream });
                } else {
                    self.reach(now, target, stream);
                }
            }
        }
    }

    /// A request has come to its device of channels.
    pub(super) fn reach(&mut self, now: Nanos, target: u32, stream: u32) {
        if let Device::Channels(channels) = &self.scenario.targets[target as usize].device
            && self.targets[target as usize].channels.take(channels, stream)
        {
            self.wait_in_channel(now, channels, target, stream);
        }
    }

    pub(super) fn wait_in_channel(&mut self, now: Nanos, channels: &Channels, target: u32, stream: u32) {
        self.streams[stream as usize].taken_at = now;
        let phase = self.phase_of(stream);
        let state = &mut self.targets[target as usize];
        let times = &channels.times[phase.access().index()];
        let latency = times.among(channels.load_dependence, state.channels.taken());
        let latency = jittered(latency, channels.jitter, &mut state.random).max(Nanos(1));
        let passing = times.bandwidth.map_or(Nanos::ZERO, |rate| rate.time_for(phase.bytes()));
        self.schedule(now + latency + passing, Event::Transfer { target, stream });
    }

    pub(super) fn transfer(&mut self, now: Nanos, target: u32, stream: u32) {
        let bytes = self.phase_of(stream).bytes();
        if let Device::Channels(channels) = &self.scenario.targets[target as usize].device {
            let at = self.targets[target as usize].channels.transfer(channels, now, bytes);
            self.schedule(at, Event::Finish { target, stream });
        }
    }
}
