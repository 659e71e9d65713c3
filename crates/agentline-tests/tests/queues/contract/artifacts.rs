//! Rows about artifacts.

use crate::stage::QueueStage;
use agentline_queue::{MAX_ARTIFACT, QueueError, artifact_name};

pub(super) async fn artifacts_are_stored_by_content(stage: QueueStage) {
    let (artifacts, other, experiment) = (stage.queue.artifacts(), stage.other.artifacts(), &stage.name);
    assert_eq!(artifacts.names(experiment).await.expect("an answer"), Vec::<String>::new());
    let name = artifacts.put(experiment, b"content").await.expect("an artifact");
    assert_eq!(name, artifact_name(b"content"));
    // Two workers may store the same content at the same time.
    let (again, at_once) =
        tokio::join!(artifacts.put(experiment, b"content"), other.put(experiment, b"content"));
    assert_eq!([again.expect("an artifact"), at_once.expect("an artifact")], [name.clone(), name.clone()]);
    let empty = artifacts.put(experiment, b"").await.expect("an artifact");
    assert_eq!(
        other.get(experiment, &name).await.expect("an answer").as_deref(),
        Some(b"content".as_slice())
    );
    assert_eq!(other.get(experiment, &empty).await.expect("an answer").as_deref(), Some(b"".as_slice()));
    assert!(other.has(experiment, &name).await.expect("an answer"));

    let missing = artifact_name(b"missing");
    assert_eq!(other.get(experiment, &missing).await.expect("an answer"), None);
    assert!(!other.has(experiment, &missing).await.expect("an answer"));
    let sibling = format!("{experiment}-2");
    assert_eq!(other.get(&sibling, &name).await.expect("an answer"), None);

    let mut listed = other.names(experiment).await.expect("an answer");
    listed.sort();
    let mut stored = [name.clone(), empty.clone()];
    stored.sort();
    assert_eq!(listed, stored);
    for _ in 0..2 {
        other.remove(experiment, &name).await.expect("it is no longer there");
    }
    assert!(!artifacts.has(experiment, &name).await.expect("an answer"));
    assert_eq!(artifacts.names(experiment).await.expect("an answer"), [empty]);
    // An artifact can be stored again after its removal.
    artifacts.put(experiment, b"content").await.expect("an artifact");
    assert!(other.get(experiment, &name).await.expect("an answer").is_some());
}

pub(super) async fn large_artifacts_are_stored_and_larger_ones_refused(stage: QueueStage) {
    let artifacts = stage.queue.artifacts();
    let mut content: Vec<u8> = (0..MAX_ARTIFACT).map(|number| (number % 253) as u8).collect();
    let name = artifacts.put(&stage.name, &content).await.expect("an artifact");
    let stored = stage.other.artifacts().get(&stage.name, &name).await.expect("an answer");
    assert!(stored.expect("the artifact") == content);
    content.push(0);
    let refused = artifacts.put(&stage.name, &content).await;
    assert!(matches!(refused, Err(QueueError::TooLarge { .. })), "{refused:?}");
}
