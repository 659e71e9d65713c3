//! Rows about records.

use crate::stage::QueueStage;
use agentline_queue::QueueError;
use std::time::{Duration, Instant};

#[track_caller]
fn assert_conflict(written: Result<u64, QueueError>, name: &str) {
    assert!(matches!(&written, Err(QueueError::Conflict(conflict)) if conflict == name), "{written:?}");
}

pub(super) async fn stale_revision_is_a_conflict(stage: QueueStage) {
    let (queue, other, name) = (&stage.queue, &stage.other, format!("{}.state", stage.name));
    assert_eq!(queue.record(&name).await.expect("an answer"), None);
    assert_conflict(queue.write_record(&name, b"0", 1_000_000).await, &name);
    let first = queue.write_record(&name, b"1", 0).await.expect("a record");
    assert_conflict(other.write_record(&name, b"2", 0).await, &name);
    let second = other.write_record(&name, b"2", first).await.expect("a record");
    assert_conflict(queue.write_record(&name, b"3", first).await, &name);
    let record = queue.record(&name).await.expect("an answer").expect("a record");
    assert_eq!((record.value.as_slice(), record.revision), (b"2".as_slice(), second));

    other.remove_record(&name).await.expect("removed");
    other.remove_record(&name).await.expect("removing it again has no effect");
    assert_eq!(queue.record(&name).await.expect("an answer"), None);
    assert_conflict(queue.write_record(&name, b"4", second).await, &name);
    // Revisions never repeat, also after a removal.
    let third = queue.write_record(&name, b"", 0).await.expect("a record");
    assert!(first < second && second < third, "{first}, {second}, {third}");
    let record = other.record(&name).await.expect("an answer").expect("a record");
    assert_eq!((record.value, record.revision), (Vec::new(), third));
}

pub(super) async fn eight_writers_lose_no_increment(stage: QueueStage) {
    const INCREMENTS: usize = 10;
    let writer = |number: usize| {
        let stage = stage.clone();
        tokio::spawn(async move {
            let queue = if number.is_multiple_of(2) { &stage.queue } else { &stage.other };
            let mut done = 0;
            while done < INCREMENTS {
                let record = queue.record(&stage.name).await.expect("an answer");
                let (value, revision) = record.map_or((0, 0), |r| (r.value.len(), r.revision));
                match queue.write_record(&stage.name, &vec![b'x'; value + 1], revision).await {
                    Ok(new) => {
                        assert!(new > revision);
                        done += 1;
                    }
                    Err(QueueError::Conflict(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    let writers: Vec<_> = (0..8).map(writer).collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
    let record = stage.queue.record(&stage.name).await.expect("an answer").expect("a record");
    assert_eq!(record.value.len(), 8 * INCREMENTS);
}

pub(super) async fn records_are_found_by_prefix(stage: QueueStage) {
    let name = |suffix: &str| format!("{}{suffix}", stage.name);
    for suffix in [".b", ".a.2", "", "-x.a", "x.a", ".a.1"] {
        stage.queue.write_record(&name(suffix), suffix.as_bytes(), 0).await.expect("a record");
    }
    let found = async |prefix: &str| -> Vec<String> {
        let records = stage.other.records(prefix).await.expect("an answer");
        for record in &records {
            assert_eq!(name(&String::from_utf8_lossy(&record.value)), record.name);
        }
        records.into_iter().map(|record| record.name).collect()
    };
    assert_eq!(found(&name("")).await, [name(".a.1"), name(".a.2"), name(".b")]);
    assert_eq!(found(&name(".a")).await, [name(".a.1"), name(".a.2")]);
    assert_eq!(found(&name(".c")).await, Vec::<String>::new());
    stage.queue.remove_record(&name(".a.1")).await.expect("removed");
    assert_eq!(found(&name("")).await, [name(".a.2"), name(".b")]);
}

pub(super) async fn age_of_a_record_is_the_time_since_its_last_change(stage: QueueStage) {
    let name = format!("{}.w", stage.name);
    let age = async || {
        let records = stage.other.records(&stage.name).await.expect("an answer");
        records.iter().find(|record| record.name == name).expect("the record").age
    };
    let first = stage.queue.write_record(&name, b"1", 0).await.expect("a record");
    let waited = Duration::from_millis(1500);
    tokio::time::sleep(waited).await;
    let Some(before) = age().await else {
        assert!(format!("{:?}", stage.queue).starts_with("SqliteQueue"), "machines share this queue");
        return;
    };
    assert!(before >= waited - Duration::from_millis(100), "{before:?}");
    let written = Instant::now();
    stage.queue.write_record(&name, b"2", first).await.expect("a record");
    let after = age().await.expect("an age");
    assert!(after <= written.elapsed() + Duration::from_millis(100), "{after:?}");
}
