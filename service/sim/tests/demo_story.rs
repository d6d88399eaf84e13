//! The demo plays the same story each time: the real service over HTTP, on a
//! simulated world that runs far faster than life.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drainwell_sim::demo::{self, DemoOptions, DemoResult, End, Fate, NodeStory, Screen, Story};

/// Far more than a run takes.
const LIMIT: Duration = Duration::from_secs(120);

fn options() -> DemoOptions {
    let listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    DemoOptions {
        listen,
        speed: 240.0,
        seed: 3,
    }
}

async fn played() -> DemoResult {
    let run = demo::run_on(options(), Screen::hidden(), std::future::pending());
    tokio::time::timeout(LIMIT, run)
        .await
        .expect("it ends by itself")
        .expect("it is played")
}

/// Name up to its made-up end, fate, grace that it got.
fn fates(node: &NodeStory) -> Vec<(String, &Fate, Option<u32>)> {
    let short = |name: &str| {
        name.rsplit_once('-')
            .map_or(name, |(head, _)| head)
            .to_owned()
    };
    node.pods
        .iter()
        .map(|p| (short(&p.name), &p.fate, p.grace_got_s))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_tells_the_same_story_each_time() {
    let (first, second) = tokio::join!(played(), played());
    let story = &first.story;
    assert_eq!(story.faults(), Vec::<String>::new());
    assert!(first.succeeded() && second.succeeded());
    assert_eq!(*story, second.story);

    let gpu = &story.acts[0].nodes[0];
    assert_eq!(gpu.tiers, ["workload", "daemon", "system"]);
    assert_eq!(gpu.taints, ["nvidia.com/gpu", "example.com/cordoned"]);
    let alone = |why: &str| Fate::LeftAlone(why.to_owned());
    let (finished, daemon, mirror) = (
        alone("finished before the notice"),
        alone("DaemonSet pod that tolerates the taint"),
        alone("static pod, which only the kubelet can stop"),
    );
    let expected: [(&str, &Fate, Option<u32>); 11] = [
        ("research/llama-pretrain-0", &Fate::Evicted, Some(600)),
        ("research/llama-pretrain-1", &Fate::Evicted, Some(600)),
        ("research/llama-pretrain-2", &Fate::Evicted, Some(600)),
        ("research/protein-fold", &Fate::Evicted, Some(2400)),
        ("research/tokenize-corpus", &finished, None),
        ("serving/chat-6f7d8c9b5", &Fate::Forced, Some(120)),
        ("logging/log-collector", &Fate::Evicted, Some(60)),
        (
            "gmp-system/rule-evaluator-5d9f8b7c6",
            &Fate::Evicted,
            Some(60),
        ),
        (
            "kube-system/konnectivity-agent-85b6c7d4f",
            &Fate::Evicted,
            Some(30),
        ),
        (
            "kube-system/kube-proxy-gke-train-a3-2f9c61d8",
            &mirror,
            None,
        ),
        ("kube-system/nvidia-gpu-device-plugin", &daemon, None),
    ];
    assert_eq!(
        fates(gpu),
        expected.map(|(name, fate, got)| (name.to_owned(), fate, got))
    );

    let slice = &story.acts[1].nodes;
    assert_eq!(slice.len(), 2);
    for node in slice {
        let worker = &node.pods[0];
        assert!(worker.name.starts_with("research/gemma-tune-worker-0-"));
        assert_eq!(
            (&worker.fate, worker.grace_got_s),
            (&Fate::Evicted, Some(120))
        );
        assert!(
            matches!(worker.end, End::Stopped { after_s: 85..=95 }),
            "{:?}",
            worker.end
        );
        assert_eq!(node.taints, ["google.com/tpu"]);
    }
    what_goes_wrong_is_named(story);
}

/// A story like this one, but for one thing, is a failure.
fn what_goes_wrong_is_named(story: &Story) {
    let spoiled = |spoil: fn(&mut NodeStory)| {
        let mut story = story.clone();
        spoil(&mut story.acts[0].nodes[0]);
        story.faults()
    };
    let node = "gke-train-a3-2f9c61d8-7k2m";
    let pod = &story.acts[0].nodes[0].pods[0].name;
    let unmarked = spoiled(|node| node.marked = 0);
    assert_eq!(unmarked, [format!("{node} was marked 0 times")]);
    let left = spoiled(|node| node.left_behind.push("it is not Ready".to_owned()));
    assert_eq!(left, [format!("{node}: it is not Ready")]);
    let lost = spoiled(|node| node.pods[0].end = End::WithHost);
    assert_eq!(
        lost,
        [format!("{pod} was told too late: its host stopped first")]
    );
    let cut = spoiled(|node| node.pods[0].grace_got_s = Some(599));
    assert_eq!(cut, [format!("{pod} asks for 600 s and got 599 s")]);
    let disturbed = spoiled(|node| node.pods[0].fate = Fate::Disturbed("static pod".to_owned()));
    let expected = format!("{pod} was told to stop, and should not have been: static pod");
    assert_eq!(disturbed, [expected]);
    let forgotten = spoiled(|node| node.pods[0].fate = Fate::Forgotten);
    assert_eq!(forgotten, [format!("{pod} was never told to stop")]);
}

#[tokio::test]
async fn the_demo_ends_at_once_when_it_is_stopped() {
    let stop = tokio::time::sleep(Duration::from_millis(300));
    let run = demo::run_on(options(), Screen::hidden(), stop);
    let result = tokio::time::timeout(Duration::from_secs(10), run)
        .await
        .unwrap()
        .unwrap();
    assert!(result.stopped && !result.succeeded());
}

#[tokio::test]
async fn an_address_that_is_asked_for_has_to_be_free() {
    let taken = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .unwrap();
    let listen = Some(taken.local_addr().unwrap());
    let options = DemoOptions {
        listen,
        ..options()
    };
    let error = demo::run_on(options, Screen::hidden(), std::future::pending())
        .await
        .unwrap_err();
    assert!(
        format!("{error}").contains("--listen 127.0.0.1:"),
        "{error}"
    );
}
