//! The handler `log`: one line per batch, then succeeded.
//!
//! The default of a queue, so that a first try shows something. The line has the figures of the batch and never a
//! payload: logs are read by more people than events are meant for.

use async_trait::async_trait;

use quell_core::outcome::Outcome;

use crate::handler::{Handler, Run};

/// Writes a line and succeeds.
#[derive(Debug, Clone, Copy)]
pub struct Log;

#[async_trait]
impl Handler for Log {
    async fn handle(&self, run: &Run) -> Outcome {
        let batch = run.batch();
        tracing::info!(
            queue = %run.queue(),
            key = %run.key(),
            tenant = %run.tenant(),
            run = %run.run_id(),
            attempt = run.attempt(),
            token = run.token(),
            fired_by = run.fired_by().as_str(),
            events = batch.events.len(),
            first_seq = batch.lo(),
            last_seq = batch.hi(),
            "batch.logged"
        );
        Outcome::succeeded()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::handler::sample_run;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn the_line_names_the_batch_and_never_its_payload() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let guard = tracing::subscriber::set_default(subscriber);
        let outcome = Log.handle(&sample_run(r#"{"text":"secret words"}"#)).await;
        drop(guard);
        assert_eq!(outcome, Outcome::succeeded());
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(
            text.contains("queue=chat key=49 171/5 tenant=acme run=run_2m_9f attempt=1 token=17"),
            "{text}"
        );
        assert!(text.contains("fired_by=\"quiet\" events=2 first_seq=11 last_seq=12"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
