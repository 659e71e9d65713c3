//! Downloads what the tests of the integrations need. Tests start in the order of their names, so this one starts long
//! before those of the integrations, and the tests in between leave the network idle.

use agentline_tests::{ClaudeSdk, InstalledPromptfoo, Python, TypeScript, skipped};
use std::thread;

#[test]
fn packages_of_the_integration_tests_can_be_installed() {
    let available = thread::scope(|scope| {
        let installs = [
            scope.spawn(|| InstalledPromptfoo::find("").is_some()),
            scope.spawn(|| Python::find().is_some()),
            scope.spawn(|| TypeScript::find().is_some()),
            scope.spawn(|| ClaudeSdk::find().is_some()),
        ];
        installs.map(|install| install.join().unwrap())
    });
    if available != [true; 4] {
        skipped("packages of the integration tests");
    }
}
