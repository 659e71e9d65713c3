//! Many clients that disconnect at random.

use crate::{
    Test,
    client::{HttpClient, SseEvent},
    run,
    stage::ServerStage,
};

pub(crate) const TESTS: &[Test] =
    &[("clients::many_clients_with_disconnects_and_a_restart_receive_the_same", many_clients)];

/// A small generator of numbers, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Reads events until the end or until this many were read.
async fn read(client: &HttpClient, run: &str, events: &mut Vec<SseEvent>, most: u64) -> bool {
    let after = events.last().map_or(0, |event| event.id);
    let mut stream = client.events(run, after).await;
    if stream.status() == 204 {
        return true;
    }
    for _ in 0..most {
        match stream.next().await {
            Some(event) => events.push(event),
            None => return events.last().is_some_and(|event| event.event == "outcome"),
        }
    }
    false
}

fn many_clients() {
    // In CI, 100 clients. `SERVE_TEST_CLIENTS` sets another number.
    let count: u64 = std::env::var("SERVE_TEST_CLIENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    run(async move {
        let mut stage = ServerStage::start().await;
        let id = stage.run("chunks 150 piece-{n}\nsleep 300\nchunks 150 more-{n}\nsay end").await;
        let mut clients = Vec::new();
        for number in 0..count {
            let (client, id) = (stage.client.clone(), id.clone());
            clients.push(tokio::spawn(async move {
                let mut random = Random(number * 7_919 + 17);
                let mut events = Vec::new();
                // One disconnect at a random position while the run is in progress. Every fifth client stays away until
                // the server was restarted.
                let ended = read(&client, &id, &mut events, 1 + random.below(250)).await;
                if ended || number % 5 == 0 {
                    return events;
                }
                read(&client, &id, &mut events, u64::MAX).await;
                events
            }));
        }
        let mut received = Vec::new();
        for client in clients {
            received.push(client.await.expect("a client"));
        }
        stage.outcome(&id).await;
        stage.restart().await;
        let expected = stage.client.all_events(&id).await;
        assert_eq!(expected.last().unwrap().event, "outcome");
        assert!(expected.len() > 250, "{}", expected.len());
        let mut resumed = 0;
        for events in &mut received {
            if events.len() < expected.len() {
                resumed += 1;
                read(&stage.client, &id, events, u64::MAX).await;
            }
            assert!(*events == expected, "a client has {} of {} events", events.len(), expected.len());
        }
        assert!(resumed > 0, "no client continued after the restart");
    });
}
