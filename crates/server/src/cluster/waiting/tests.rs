//! Requests that wait for their answers.

use super::*;

fn waiting(deadline: Nanos) -> Waiting<u32> {
    Waiting { pending: 7, is_peer: false, made: None, cut: None, deadline }
}

#[test]
fn a_request_is_taken_once() {
    let requests = Requests::new();
    let (first, second) =
        (requests.add(waiting(Nanos(5))).ok().unwrap(), requests.add(waiting(Nanos(5))).ok().unwrap());
    assert_eq!(requests.deadline(first), Some(Nanos(5)));
    assert!(requests.take(first).is_some() && requests.take(first).is_none());
    assert_eq!((requests.deadline(first), requests.deadline(second)), (None, Some(Nanos(5))));
    assert!(requests.take_late(Nanos(5) + LATE).is_some());
    assert!(requests.take_late(Nanos::MAX).is_none() && requests.take(second).is_none());
}

#[test]
fn the_earliest_is_late_first() {
    let requests = Requests::new();
    for deadline in [3, 1, 2] {
        requests.add(waiting(Nanos::from_secs(deadline))).ok().unwrap();
    }
    let late = |now| requests.take_late(now).map(|waiting| waiting.deadline);
    assert_eq!(late(Nanos::from_secs(1) + LATE + Nanos(1)), Some(Nanos::from_secs(1)));
    assert_eq!(late(Nanos::from_secs(1) + LATE + Nanos(1)), None);
    assert_eq!(late(Nanos::MAX), Some(Nanos::from_secs(2)));
}

#[test]
fn they_are_bounded() {
    let requests = Requests::new();
    let ids: Vec<RequestId> = (0..WAITING_MAX).map(|_| requests.add(waiting(Nanos(1))).ok().unwrap()).collect();
    assert!(requests.add(waiting(Nanos(1))).is_err());
    requests.take(ids[0]).unwrap();
    requests.add(waiting(Nanos(1))).ok().unwrap();
}
