//! A move that is stopped at any of its writes.

use lab::Extent;
use relocation::Outcome;

use crate::{
    assert_moved, assert_untouched,
    sides::{How, Stop},
};

/// From one write that is stopped to the next: in a full run each of them is.
fn stride() -> usize {
    match Extent::of_this_run() {
        Extent::Usual => 7,
        Extent::Full => 1,
    }
}

/// Stops a move at its writes, on sides of its own, and says how many there are at least.
async fn at_each_write(
    how: How,
    then: impl AsyncFn(&crate::Sides, &crate::Objects, usize, Option<pivot::Error>),
) -> usize {
    for write in (1..).step_by(stride()) {
        let (sides, before) = crate::small_sides().await;
        let stop = Stop::at(write, how);
        let stopped = sides.carry_over_until(&stop).await;
        if !stop.was_reached() {
            assert_eq!(stopped.unwrap().unwrap().outcome, Outcome::Moved);
            assert_moved(&sides, &before, "undisturbed").await;
            return write - stride();
        }
        then(&sides, &before, write, stopped.and_then(Result::err)).await;
    }
    unreachable!("a move has an end");
}

#[tokio::test]
async fn a_move_that_was_killed_before_any_write_is_ended_by_the_same_command() {
    let writes = at_each_write(How::KilledBefore, async |sides, before, write, _| {
        sides.carry_over().await.unwrap();
        assert_moved(sides, before, &format!("killed before write {write}")).await;
    });
    let writes = writes.await;
    println!("killed and ended; it has at least {writes} writes");
    assert!(writes > 90, "{writes}");
}

#[tokio::test(start_paused = true)]
async fn a_move_that_hears_of_no_write_at_first_asks_again() {
    let (sides, before) = crate::sides().await;
    // Each is done and then answered with 503: a proxy in between loses the answers.
    let stop = Stop::at(usize::MAX, How::Unheard);
    let moved = sides.carry_over_until(&stop).await.unwrap().unwrap();
    assert_eq!(moved.outcome, Outcome::Moved);
    assert_moved(&sides, &before, "with no answer to any write").await;
}

#[tokio::test]
async fn a_move_that_was_killed_before_its_point_of_no_return_is_taken_back_and_not_later() {
    let (taken_back, refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    at_each_write(How::KilledBefore, async |sides, before, write, _| {
        let when = format!("taken back from write {write}");
        match sides.take_back().await {
            Ok(_) => {
                assert_untouched(sides, before, &when).await;
                taken_back.set(taken_back.get() + 1);
            }
            Err(error) => {
                assert!(
                    error
                        .to_string()
                        .contains("the point of no return is behind"),
                    "{error}"
                );
                sides.carry_over().await.unwrap();
                assert_moved(sides, before, &when).await;
                refused.set(refused.get() + 1);
            }
        }
    })
    .await;
    let (taken_back, refused) = (taken_back.get(), refused.get());
    println!("taken back {taken_back} times, refused {refused} times");
    let some = 40 / stride();
    assert!(
        taken_back > some && refused > some,
        "{taken_back} {refused}"
    );
}

#[tokio::test]
async fn a_write_that_is_refused_leaves_both_sides_as_they_were_or_is_gone_on_with() {
    let undone = std::cell::Cell::new(0);
    at_each_write(How::Refused, async |sides, before, write, error| {
        let when = format!("write {write} was refused");
        match error {
            Some(pivot::Error::Undone { left, .. }) if left.starts_with("taken back") => {
                assert_untouched(sides, before, &when).await;
                undone.set(undone.get() + 1);
            }
            // Before the record is written, and after the point of no return.
            Some(_) => {
                sides.carry_over().await.unwrap();
                assert_moved(sides, before, &when).await;
            }
            None => panic!("{when} and nobody was told"),
        }
    })
    .await;
    println!("undone by itself {} times", undone.get());
    assert!(undone.get() > 40 / stride());
}

#[tokio::test]
async fn an_abort_that_was_killed_before_any_write_is_ended_by_the_same_command_or_by_a_move() {
    for write in (1..).step_by(stride()) {
        let (sides, before) = crate::small_sides().await;
        // Everything was copied.
        let last = Stop::at(50, How::KilledBefore);
        assert!(sides.carry_over_until(&last).await.is_none());
        let stop = Stop::at(write, How::KilledBefore);
        let stopped = sides.take_back_until(&stop).await;
        if stopped.is_some() {
            assert_untouched(&sides, &before, "undisturbed").await;
            println!("an abort has at least {} writes", write - stride());
            assert!(write > 40, "{write}");
            return;
        }
        let when = format!("the abort was killed before write {write}");
        if write % 2 == 0 {
            sides.take_back().await.unwrap();
            assert_untouched(&sides, &before, &when).await;
        } else {
            sides.carry_over().await.unwrap();
            assert_moved(&sides, &before, &when).await;
        }
    }
}
