//! The scripts under `tests/scripts`, on the real control plane: each comes to
//! the same end as in the simulator, whose tests write the `.out` files.

use std::path::Path;

use drainwell_sim::script::split_end;
use drainwell_tests::script::Player;

/// The service, with a clock that the player leads.
const PROGRAM: &str = env!("CARGO_BIN_EXE_drainwell-led");

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

async fn play(name: &str) {
    let read = |suffix: &str| {
        let file = folder().join(name).with_extension(suffix);
        std::fs::read_to_string(file).unwrap()
    };
    let (script, output) = (read("txt"), read("out"));
    let (_, expected_end) = split_end(&output);
    let mut player = Player::new(&script, Path::new(PROGRAM)).await.unwrap();
    player.play(expected_end).await.unwrap();
}

/// A test for each script, and one that none is forgotten.
macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            play(stringify!($name)).await;
        })*

        #[test]
        fn every_script_is_played_on_the_real_control_plane_too() {
            let mut played = vec![$(concat!(stringify!($name), ".txt")),*];
            played.sort_unstable();
            let files = std::fs::read_dir(folder()).unwrap();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            let mut there: Vec<String> = names.filter(|name| name.ends_with(".txt")).collect();
            there.sort();
            assert_eq!(played, there);
        }
    };
}

scripts! {
    api_server_away
    budget_freed_in_time
    budget_until_patience_ends
    cancelled_window
    crash_in_mid_drain
    gpu_hour
    marks_of_others
    node_built_anew
    node_deleted_in_mid_drain
    notices_in_the_wrong_order
    pods_that_come_back
    skip_in_mid_drain
    slice_of_two
    stuck_pod
    taint_taken_away
    window_moved_and_begun
}
