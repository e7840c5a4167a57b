//! The same done to many, on all processors.

use std::{
    num::NonZero,
    panic,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// What is made of each, in their order. Whoever is done takes the next one, for documents of a release differ a hundredfold in length.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else {
                return made;
            };
            made.push((at, make(item)));
        }
    };
    let mut made = thread::scope(|scope| {
        let others = 1..threads.min(items.len());
        let others: Vec<_> = others.map(|_| scope.spawn(work)).collect();
        let mut made = work();
        for other in others {
            match other.join() {
                Ok(more) => made.extend(more),
                Err(cause) => panic::resume_unwind(cause),
            }
        }
        made
    });
    made.sort_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_made_once_and_they_keep_their_order() {
        for count in [0, 1, 2, 1_000] {
            let items: Vec<usize> = (0..count).collect();
            let doubled: Vec<_> = items.iter().map(|item| item * 2).collect();
            assert_eq!(side_by_side(&items, |item| item * 2), doubled);
        }
    }
}
