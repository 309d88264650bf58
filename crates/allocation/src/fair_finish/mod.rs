//! Fair finish: every target serves one part after the other, in the order in which fair sharing would have finished
//! them, so that nobody ends later than under fair sharing and most end much sooner.
//!
//! Fair sharing finishes what it serves late, because it serves all of it at once. Here each target has a
//! [`FairClock`], in which everything that came is shared fairly; in reality the target serves whoever is first in the
//! order in which that clock finishes. (Friedman and Henderson, *Fairness and efficiency in web server protocols*,
//! SIGMETRICS 2003, for the jobs of one server. Parts of I/O phases over several targets, the floor, and the rule for
//! sizes that are told wrong are this project's.) A part's *tag* is the virtual time at which the clock finishes what
//! was told of it. At each decision a target gives
//!
//! * the *floor*: a part that has received no more than `guarantee` (g) times what it had in the fair clock gets g times
//!   what it gets there now;
//! * all the rest to the part with the least tag.
//!
//! *Sizes* are told, and may be wrong. A part that has received all that was told of it and still is not done is told
//! anew, by itself: [`GROWTH`] times as much, with the tag of that. One of which nobody knows anything is told to be of
//! [`FIRST_TOLD_S`], and then [`GROWTH_UNKNOWN`] times as much again and again: who has received little is first, as under least
//! attained service, but by the clock and in steps. When a part is done, what it turned out to be is its size in the fair clock.
//!
//! # Theorems
//!
//! One target, fluid; decisions at every change; weights that do not change while a phase lasts; an application has
//! all that is left of a part to be done at any time. The fair clock is fair sharing of the same arrivals. A unit of
//! work is a moment's service at a point of a part; its tag is the least tag that the part had when that point was
//! within what was told. By f we mean the time at which virtual time is f.
//!
//! **1. Every unit is done by its tag.** *Proof.* Take any f, and let S be the units with tags up to f. Suppose that at a time
//! t, not later than f, more of S is left in reality than in the fair clock. Let t0 be the last time before t at which
//! nothing of S that had come was left in reality, and (t0, t] what is looked at. The target works all the time. Tags
//! grow along a part, and none depends on who comes later; so the part with the least tag is at a unit of S, and all that
//! goes to units outside of S is floor. The floor gives a part that is at such a unit something only while the part has received
//! at most g times, so at most, what the clock served of it. So the clock is past the part's units in S, too, and
//! gives its other units at that moment at least as much as the floor does. In sum units outside of S receive no more than in the
//! clock, and S no less, for the clock cannot do more than work all the time. At t0 nothing was left of what had come,
//! and what came since came to both: no more of S is left than in the clock, against what we supposed. At f the clock
//! has finished S. ∎
//!
//! **2. Sizes known: no part ends later than under fair sharing, and so no phase does, whatever its number of
//! targets** (*dominance*). The last unit of a part has the tag at which the fair clock finishes the part, and by 1 it is done
//! then. A phase ends with the last of its parts, here as there, and the targets are independent of each other: the same
//! arrivals and targets that may run ahead (POFS, banked) are all that is needed. ∎ It holds for every guarantee from 0
//! to 1; with 1 it is fair sharing.
//!
//! **3. The floor.** *At every moment a part has received at least g times what the fair clock gave it*, because it gets g
//! times as much as there while it has exactly that; floors add up to g times the capacity at most. So whatever anybody
//! tells, a part is done when the clock would have served 1/g of its size. ∎ This takes decisions at every change. With
//! decisions at intervals a part may be *overdue*, finished in the clock and not in reality; then the floors are less, by the
//! part of the weight that overdue parts have, and nothing but its turn makes up for what a part has missed.
//!
//! **4. Sizes wrong.** *A part is done by the time at which fair sharing would have finished it, if every part were as long
//! as the last thing told of it:* at most k times its size, told k times too much; less than [`GROWTH`] times, told too
//! little, for then it is told anew until that reaches its size; of one of which nothing was known, less than
//! [`GROWTH_UNKNOWN`] times, or [`FIRST_TOLD_S`]. *Proof.* The last unit of a part has the tag of the last thing told, and 1
//! holds of it. Whoever is in the clock is in that fair sharing, too, for nobody has had more in the clock than the last
//! thing told of him: while this is so everybody gets no more there than here, and so nobody is through there sooner. ∎
//!
//! **5. Lies do not pay at others' cost.** *Whoever tells a wrong size delays nobody beyond the time at which fair sharing
//! would have finished the other, had the liar's part been as long as the last thing told of it:* this is 4.
//!
//! *Nor does he end sooner than with the truth, if the sizes of all others are told as they are.* *Proof.* Look at one part;
//! let a be when it comes, F when the clock finishes it with the truth, τ its tag then, and E ≤ F when it is done then.
//! Suppose that with the lie it is done at E' < E. Up to E' the clock is the same, with the lie or the truth: others are in
//! it for as long as their true sizes take, for none ends after that (1), and he is in it before F with both. So the others
//! have the same tags. Let S be his part and the others' with a tag before τ. With the truth something of S is left from a to
//! E, namely his part; so others that are not in S receive then only what the floor has to give them: each at any time the
//! larger of what it had at a and g times what the clock served of it. They have received no less with the lie, by 3. The
//! target works all the time with the truth, so up to E' no less of S was served then than with the lie. Just before E' it
//! was not the floor that served him: then the clock would have served as much of him as he needs, before F. So he had the
//! least tag, at the end of his part at least τ, and nothing else of S was left. At E' nothing of S is left with the lie, and
//! no more with the truth: he is done, against E' < E. ∎ *With g = 0, if nobody comes after him*, it holds whatever the
//! others tell: the tags of all are then those that they came with, and the same S is served first.
//!
//! It is *not* so otherwise: where others tell wrong sizes a lie may change for how long they are in the clock, and with it
//! the floors of all, and the tags of those who come later. Two examples are among the tests: 1.2 % sooner by the one, 20 %
//! by the other. Nothing better is proven of what may be gained there than that he would have ended with the truth as by 4.
//! In random cases in which two thirds of all others tell wrong sizes, a random lie made one in 1,300 parts end sooner, by 6
//! % at most, and one in six later, half of them by more than a half (30,088 parts).
//!
//! **6. Accounts** ([`FairFinish::with_accounts`]). In a closed loop who ended sooner comes again sooner, and in the fair
//! clock he then is there twice: with the rest of his phase and with the next one. With accounts the next one begins there
//! when the one before has ended, so that *nobody's fair share falls because others came back sooner: at every moment each
//! application has the weight of one at a target.* All of the above holds for the clock with accounts, because a unit is in
//! reality to be had no later than there. Against a clock without, a phase that came back early may be late. ∎ The weight is
//! that of the phase with which the account was opened: who comes back with another one has that when the clock has finished
//! all that he brought before.
//!
//! **7. The closed system** ([`ClosedClock`], [`FairFinishTarget::with_closed_clock`]). 1 to 6 compare with fair sharing of the phases that
//! come; but under it fewer would have come. In the clock of the closed system a phase begins so long after the one before has
//! ended there, at all of its targets, as it took in reality. A part is *early* until its phase begins in the clock. A
//! target gives parts that are not early their floors and the least tag among them the rest, as above; early parts have what
//! is left, in any order (here: the least left first), and what was done of them early is done. *If sizes are told as they are, and
//! sizes and the times between phases do not depend on the schedule, no application's k-th phase ends later than its k-th
//! phase would, had all targets been shared fairly from the beginning.*
//!
//! *Proof.* Suppose that some part is not done in reality when it ends in the clock, and let f be the first time at which that is so.
//! Before f every phase that ended in the clock had ended in reality; so every phase began in reality no later than in the
//! clock, which never had to wait for it: up to f the clock is fair sharing of the closed system. Look at the target in
//! question. Let S be the parts that began in its clock before f and end there by f. For any time t ≤ f let t0 be the last
//! time up to t at which nothing was left in reality of those of S that had begun in the clock. After t0 something of S was always
//! left that was not early. So the target worked all the time, gave nothing to early parts, and of the others the least tag was in S:
//! parts outside S had floors at most, which is at most what the clock gave them. So S had no less than in the clock. What
//! began in the clock since t0 had as much to do in reality as there, or less if some of it was done early. So no more of S is left at t than in
//! the clock, and at f nothing: against what we supposed. A phase ends with the last of its parts, here as there. ∎
//!
//! So nobody has a phase less done at any time than under fair sharing. *Nor does anybody spend more time in I/O over its
//! first k phases, for any k.* *Proof.* Up to the end of the k-th phase an application is in I/O, computes, or waits for the
//! time of a submission, and what it computes is the same. A wait for a submission is from the end of the phase before until
//! then, if that is later, so that of each is no shorter where that phase ends no later. So the time in I/O is the end less
//! what is the same and less what is no shorter. ∎ A single phase may take longer: it ends no later, but begins sooner. *And
//! the mean over all phases that ended by a given time may be longer*, because more of them did: whose phases take 1 s and
//! 100 s alone has a mean of 1 s where only the first ends in time, and 50.5 s where both do. Whatever lets the second end
//! in time does that, so no rule that ends phases sooner bounds this mean.
//!
//! The floor (3) holds of what is not early. The times between do depend on the schedule where jobs wait for nodes: who ends
//! sooner makes room for others sooner. Then the clock is fair sharing with the waits as they were, which is another system
//! than one in which the waits are those of fair sharing. With wrong sizes it is measured, and not proven.
//!
//! **8. Jobs that wait for nodes: nothing can be promised.** Jobs start in the order in which they are submitted, each when
//! those before it have started and enough nodes are free; an application's next run is submitted when the one before has
//! ended, or later.
//!
//! *a) Take any rule that knows neither who will be submitted nor what those who are there will do next, and any system in
//! which it ends some phase p sooner than fair sharing does. There is a system that is the same until p has ended under the
//! rule, in which somebody's k-th phase ends later under the rule than under fair sharing, by as much as you like. So a rule
//! under which never any k-th phase ends later than under fair sharing ends every phase exactly when fair sharing does, and
//! gains nothing.* *Proof.* Let p, of application A, end at t under the rule, and at t' > t under fair sharing. In the other
//! system p is the last phase of A's run, A's next run computes for L first, and at some u between t and t' a job D is
//! submitted that needs all nodes. Until t the rule sees no difference. A's next run is submitted at t, before D; so D has
//! to wait until it has ended, and starts at t + L at the earliest. Under fair sharing nothing differs until u, when p has
//! not ended; so A's next run is submitted after D. D starts when all that was submitted before it has ended: at some T that
//! does not depend on L. With L large enough the first phase of D ends under the rule as much later as you like. ∎ It is the
//! same if the rule knows what all who are there will do, of systems in which p is the last phase of a run and the next one
//! computes for L; and with EASY backfilling, of systems in which nobody waits at t, neither under the rule nor under fair
//! sharing, for then under fair sharing A's next run is taken to end too late to overtake D. Nothing in it is of fair sharing: it is so of any schedule instead of it.
//!
//! *b) Nor does it help to know all of what is to come: in some systems no rule makes anybody's time in I/O noticeably less
//! than under fair sharing unless one application in four has more.* *Proof.* There are three nodes. A and B, of one node
//! each, have phases of 10 s at the same target, from 0 on; their next runs compute for 1,000 s and have a phase of 1 s at a
//! target of their own. E, of one node, computes for 1,105 s, and then has a phase of 30 s at the first target. D, of two
//! nodes, is submitted at u, just before 20 s, computes for 100 s and has a phase of 10 s at the first target. Fair sharing
//! ends A and B at 20; D starts then, before their next runs, and is in I/O from 120 to 130. No phase but the first two
//! takes longer than it would alone, so only those can become shorter, by more than 20 − u only if one of them, say that of
//! A, ends at a time t from 10 to u. Not both do. Then A's next run starts at t. With it and E two of three nodes are taken,
//! so D starts when that run has ended (and B's first, which is done by 21 unless B has more). That is at t + 1,001 at the
//! earliest, so at 1,011, and at 1,021 at the latest, unless A has more: its two phases took 21 s under fair sharing. So D
//! comes to the target between 1,111 and 1,121 and is done by 1,131, unless it has more, and E is there from 1,105 to
//! 1,135, unless it has more: one of the two has, for it is the same target. ∎
//!
//! Both are about what can be promised. That a rule leaves few worse off in systems that there are is not excluded; what was
//! measured stands in `docs/concepts/fair-finish.md`. `crates/sim/tests/limited_nodes.rs` computes both, with backfilling.
//!
//! **9. The starts replayed** (`Clock::Replayed`, in a laboratory that can run fair sharing of the whole system first, nodes
//! and all). In the clock each phase begins when it began in that run. *If sizes are told as they are, no k-th phase ends
//! later than in that run as long as none has begun later than there. None does if jobs are submitted at given times, start
//! in that order as in 8, and compute for the same times under any schedule.* *Proof.* The first is the proof of 7, which
//! asks of the clock only that phases come to it no sooner than in reality. The second: take what happens in that run one by
//! one, and suppose that all of it up to something was no later in reality. If that is the end of a phase, it is no later by
//! the first. If it is the start of a job, it starts when those before it have started and enough nodes are free, that is,
//! of all jobs before it enough have ended; all of this was no later in reality. If it is the beginning of a phase, it is so
//! long after the start or the phase before as there. ∎ Where runs are submitted when others end, jobs that are done sooner
//! are before others in the queue before which they would not be, and with backfilling any job may be overtaken by one that
//! would not have fitted: there a start may be later, and by 8 nothing can be done about it.
//!
//! What is not true, with any other clock: that in a closed loop an application spends no more time in I/O than it would have, had
//! everybody been shared fairly all along. Its phases meet other phases: those that ended sooner come again sooner. Nor does any of it hold
//! for an application that has not all of its work at a target at hand, as one that writes a file's stripes one after the
//! other: what it does not ask for while it is first goes to others. With decisions at intervals overdue parts come first and
//! share by weight.

mod clock;
mod closed;
mod target;

pub use clock::{FairClock, PartId};
pub use closed::{ClosedClock, Ended, Think};
pub use target::FairFinishTarget;

use crate::fair::bsip_shares;
use crate::{Allocation, Demand, Problem, Progress};
use isonomia_units::{Nanos, Rate};
use std::sync::Arc;

/// A part that turns out to be longer than was told is told to be this many times as long.
pub const GROWTH: f64 = 1.25;
/// The same for a part of which nothing was known.
pub const GROWTH_UNKNOWN: f64 = 2.0;
/// What a part of which nothing is known is told to be at first: the time that its target needs for it alone.
pub const FIRST_TOLD_S: f64 = 1.0;
/// A difference of fewer seconds of a target is rounding.
const NOTHING_S: f64 = 1e-9;

/// A guarantee that is no part of a share.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("guarantee {0} (allowed: 0 to 1)")]
pub struct BadGuarantee(pub f64);

/// The scheme at work on all targets. Who knows what came and left where can ask the [`FairFinishTarget`]s one by one instead.
#[derive(Clone, Debug)]
pub struct FairFinish {
    guarantee: f64,
    bandwidth: Rate,
    has_accounts: bool,
    targets: Vec<FairFinishTarget<Arc<str>>>,
    /// In the order of the last problem.
    phases: Vec<Phase>,
    /// The targets of their parts that were not done.
    parts: Vec<u32>,
}

/// One application's I/O phase at the last decision.
#[derive(Clone, Debug)]
struct Phase {
    name: Arc<str>,
    began: Nanos,
    /// Where its parts end in [`FairFinish::parts`]; they begin where those of the one before end.
    end: u32,
}

impl FairFinish {
    /// The scheme that keeps `guarantee`, 0 to 1, of what fair sharing would have served, on targets of which capacity 1 is
    /// `bandwidth`.
    pub fn new(guarantee: f64, bandwidth: Rate) -> Result<Self, BadGuarantee> {
        FairFinishTarget::<Arc<str>>::new(guarantee, 1.0)?;
        let (targets, phases, parts) = Default::default();
        Ok(Self { guarantee, bandwidth, has_accounts: false, targets, phases, parts })
    }

    /// The same with an account for each application at each target: what fair sharing would still serve of its phase there
    /// comes before its next one.
    pub fn with_accounts(self) -> Self {
        Self { has_accounts: true, ..self }
    }

    /// Divides every target at `now`, which never runs backwards. Every problem is one of the same targets; what was
    /// decided has held since the last one. An application's phase is told from another by [`App::began`](crate::App::began),
    /// its size is what is told to remain when it is seen first, and a demand that is gone is done. O(d + c log n) for d
    /// demands, of which c came or went, and n at a target.
    pub fn allocate(&mut self, now: Nanos, problem: &Problem) -> Allocation {
        if self.targets.is_empty() {
            self.targets = problem.targets().capacities().iter().map(|&capacity| self.target(capacity)).collect();
        }
        self.targets.iter_mut().for_each(|target| target.advance(now));
        self.settle(problem);
        self.targets.iter_mut().for_each(FairFinishTarget::divide);
        // At each target the parts are in the order of their applications' names, as they are here.
        let mut rates: Vec<_> = self.targets.iter().map(FairFinishTarget::rates).collect();
        let rate = |&target: &u32| rates[target as usize].next().map_or(0.0, |(_, rate)| rate);
        let rates = self.parts.iter().map(rate).collect();
        Allocation::from_rates(problem, rates, &bsip_shares(problem), Progress::Banked)
    }

    /// When the last decision has to be made anew although nobody comes or is done.
    pub fn next_change(&self) -> Option<Nanos> {
        self.targets.iter().filter_map(FairFinishTarget::next_change).min()
    }

    fn target(&self, capacity: f64) -> FairFinishTarget<Arc<str>> {
        let target = FairFinishTarget::new(self.guarantee, capacity).expect("the guarantee was checked");
        if self.has_accounts { target.with_accounts() } else { target }
    }

    /// Tells the targets what came and left since the last problem.
    fn settle(&mut self, problem: &Problem) {
        let (old_phases, old_parts) = (std::mem::take(&mut self.phases), std::mem::take(&mut self.parts));
        self.phases.reserve(problem.apps().len());
        self.parts.reserve(problem.members.app_targets().len());
        let mut begin = 0;
        let mut old = old_phases.into_iter().map(|phase| {
            let parts = begin..phase.end as usize;
            begin = phase.end as usize;
            (phase, parts)
        });
        let mut next_old = old.next();
        for (app, targets) in problem.apps().iter().zip(problem.members.by_app()) {
            let mut known = 0..0;
            let is_before = |(phase, _): &mut (Phase, _)| Arc::ptr_eq(&phase.name, &app.name) || phase.name <= app.name;
            while let Some((phase, parts)) = next_old.take_if(is_before) {
                if phase.name == app.name && phase.began == app.began {
                    known = parts;
                } else {
                    self.leave(&phase.name, &old_parts[parts]);
                }
                next_old = old.next();
            }
            let mut known = old_parts[known].iter().copied().peekable();
            for (demand, &target) in app.demands.iter().zip(targets) {
                while let Some(gone) = known.next_if(|&known| known < target) {
                    self.leave(&app.name, &[gone]);
                }
                if known.next_if_eq(&target).is_none() {
                    let told = self.told(demand);
                    self.targets[target as usize].come(app.name.clone(), app.weight, told);
                }
                self.parts.push(target);
            }
            known.for_each(|gone| self.leave(&app.name, &[gone]));
            let end = self.parts.len() as u32;
            self.phases.push(Phase { name: app.name.clone(), began: app.began, end });
        }
        while let Some((phase, parts)) = next_old {
            self.leave(&phase.name, &old_parts[parts]);
            next_old = old.next();
        }
    }

    fn leave(&mut self, name: &Arc<str>, parts: &[u32]) {
        parts.iter().for_each(|&target| self.targets[target as usize].leave(name));
    }

    /// The seconds of a target of capacity 1 that are told of a demand.
    fn told(&self, demand: &Demand) -> Option<f64> {
        demand.remaining.map(|bytes| bytes.0 as f64 / self.bandwidth.bytes_per_s() as f64)
    }
}
