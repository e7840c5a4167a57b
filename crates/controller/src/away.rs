//! An API that is away for a while: its server is started again, or exchanged.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use crate::backoff::jittered;

/// How long to wait before it is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long an answer may take. A peer that has died, or one between that takes a question and forgets it, says nothing for ever.
const ANSWER: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// It refuses, or was away all the time.
    #[error(transparent)]
    Answer(E),
    /// It took the question, and said nothing.
    #[error("no answer within {} s", ANSWER.as_secs())]
    Silent,
}

/// Whether the same question may be answered in a while: nobody has answered, or only that this is not the moment.
pub fn is_away(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            !(400..500).contains(&status.code) || [408, 409, 429].contains(&status.code)
        }
        // It is there, and says what is no such object.
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => false,
        _ => true,
    }
}

/// Asks until there is an answer, as long as the API is away and for about so long at most: once where that is no time at all.
///
/// # Errors
///
/// The API refuses, or was away or silent all the time.
pub async fn outlive<T, E, F>(
    limit: Duration,
    is_away: impl Fn(&E) -> bool,
    ask: impl Fn() -> F,
) -> Result<T, Error<E>>
where
    E: std::error::Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let began = Instant::now();
    loop {
        let error = match timeout(ANSWER, ask()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if !is_away(&error) => return Err(Error::Answer(error)),
            Ok(Err(error)) => Error::Answer(error),
            Err(_) => Error::Silent,
        };
        if began.elapsed() >= limit {
            return Err(error);
        }
        sleep(jittered(AGAIN)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::pending};

    use super::*;

    #[test]
    fn one_that_refuses_is_not_away() {
        let answered = |code: u16| {
            let status = kube::core::Status::failure("no", "No").with_code(code);
            is_away(&kube::Error::Api(Box::new(status)))
        };
        for code in [408, 409, 429, 500, 503] {
            assert!(answered(code), "{code}");
        }
        for code in [400, 401, 403, 404, 413, 422] {
            assert!(!answered(code), "{code}");
        }
        assert!(is_away(&kube::Error::Service("connection refused".into())));
        let nonsense = serde_json::from_str::<u8>("<html>").unwrap_err();
        assert!(!is_away(&kube::Error::SerdeError(nonsense)));
    }

    #[derive(Debug, Eq, PartialEq, thiserror::Error)]
    enum Said {
        #[error("away")]
        Away,
        #[error("no")]
        No,
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_until_it_is_back_and_a_refusal_is_an_answer() {
        let asked = Cell::new(0);
        let ask = |back: u32, answer: Result<u32, Said>| {
            let (asked, answer) = (&asked, Cell::new(Some(answer)));
            move || {
                asked.set(asked.get() + 1);
                let is_back = asked.get() >= back;
                let answer = is_back.then(|| answer.take().unwrap());
                async move { answer.unwrap_or(Err(Said::Away)) }
            }
        };
        let limit = Duration::from_mins(1);
        let away = |error: &Said| *error == Said::Away;
        assert_eq!(outlive(limit, away, ask(5, Ok(7))).await.unwrap(), 7);
        assert_eq!(asked.replace(0), 5);
        let refused = outlive(limit, away, ask(2, Err(Said::No))).await;
        assert!(
            matches!(refused, Err(Error::Answer(Said::No))),
            "{refused:?}"
        );
        assert_eq!(asked.replace(0), 2);
        let never = outlive(Duration::ZERO, away, ask(9, Ok(7))).await;
        assert!(matches!(never, Err(Error::Answer(Said::Away))), "{never:?}");
        assert_eq!(asked.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_never_answers_is_given_up_too() {
        let (limit, began) = (Duration::from_secs(100), Instant::now());
        let asked = outlive(limit, |_: &Said| true, pending::<Result<(), Said>>).await;
        let error = asked.unwrap_err();
        assert_eq!(error.to_string(), "no answer within 15 s");
        let took = began.elapsed();
        assert!(
            took >= limit && took < limit + ANSWER + 2 * AGAIN,
            "{took:?}"
        );
    }
}
