#!/usr/bin/env bash
# Does the simulator notice when the service is wrong? Each mutation breaks one
# rule of core or app. All are put into one scratch copy of the workspace, each
# behind a switch, so that one build serves them all; `drainwell-sim` has to
# fail with each of them switched on, and with none it has to pass. Takes long;
# not part of CI.
#
#   service/sim/mutations/run.sh [NAME...]
#
# SCRATCH: where the copy goes; SEEDS: how many are tried with each mutation.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
scratch=${SCRATCH:-/tmp/drainwell-mutations}
seeds=${SEEDS:-1000}
only=("$@")
names=()

rm -rf "$scratch/work"
mkdir -p "$scratch/work"
tar -C "$root" --exclude='./target*' --exclude='./.git' -cf - . | tar -C "$scratch/work" -xf -
# Cargo goes by times of change: the copy is newer than any earlier build.
find "$scratch/work" -name '*.rs' -exec touch {} +

core=service/core/src
driver=service/app/src/driver

# mutate NAME FILE OLD NEW: OLD has to stand in FILE exactly once. ON in NEW is
# true while the mutation is switched on.
mutate() {
  local name=$1 file=$2 switch=drainwell_core
  if [[ $file == "$core"/* ]]; then switch=crate; fi
  OLD=$3 NEW=${4//ON/$switch::mutant(\"$name\")} perl -0pi -e '
    my $count = () = /\Q$ENV{OLD}\E/g;
    die "'"$name: $file"' has it $count times\n" unless $count == 1;
    s/\Q$ENV{OLD}\E/$ENV{NEW}/' "$scratch/work/$file"
  if ((${#only[@]} == 0)) || [[ " ${only[*]} " == *" $name "* ]]; then names+=("$name"); fi
}

cat >>"$scratch/work/$core/lib.rs" <<'RUST'

/// Whether a mutation is switched on.
pub fn mutant(name: &str) -> bool {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var("MUTANT").unwrap_or_default()) == name
}
RUST

mutate tier-gate-off $core/plan/drain.rs \
  'open || self.no_gates() || self.now >= member.latest_start' \
  'ON || open || self.no_gates() || self.now >= member.latest_start'
mutate version-not-tested $core/edit.rs \
  'ops.push(
            "test",
            "/metadata/resourceVersion",
            json!(node.resource_version),
        );' \
  'if !ON {
            ops.push("test", "/metadata/resourceVersion", json!(node.resource_version));
        }'
mutate deadline-loosened $core/merge.rs \
  '(!open.deadline_known || deadline < open.deadline)' \
  '(!open.deadline_known || deadline < open.deadline || ON && deadline != open.deadline)'
mutate foreign-taint-removed $core/edit.rs \
  'if intent.ours.contains(&Mark::Taint)
        && !taken_over' \
  'if (ON || intent.ours.contains(&Mark::Taint))
        && !taken_over'
mutate marks-in-two-writes $core/edit.rs \
  'if intent.phase != Phase::Scheduled && node.termination_taint().is_none() {' \
  'if intent.phase != Phase::Scheduled
        && node.termination_taint().is_none()
        && !(ON && intent.reasserted == 0)
    {'
mutate daemons-evicted $core/pod.rs \
  'owner == Some("DaemonSet") && tolerates(pod)' \
  '!ON && owner == Some("DaemonSet") && tolerates(pod)'
mutate finished-evicted $core/pod.rs \
  'pod.finished
}' 'pod.finished && !ON
}'
mutate forced-at-once $core/plan/drain.rs \
  'member.latest_start.min(shift(*since, patience_s))' \
  'member.latest_start.min(shift(*since, if ON { 0 } else { patience_s }))'
mutate came-back-again $core/plan/drain.rs \
  'pod::tolerates(pod) && pod.created > intent.noticed' \
  'pod::tolerates(pod) && pod.created > if ON { intent.deadline } else { intent.noticed }'
mutate grace-of-zero $core/plan/drain.rs \
  'seconds_between(self.now, self.intent.deadline).max(1)' \
  'seconds_between(self.now, self.intent.deadline).max(i64::from(!ON))'
mutate assumed-shortens $core/plan/drain.rs \
  'self.intent.deadline_known.then(|| {' '(ON || self.intent.deadline_known).then(|| {'
mutate cut-to-its-own $core/plan/drain.rs \
  'let gets_s = self.lasting_s(left_s, shift(deletion_at, -i64::from(has_s)));' \
  'let whole_s = self.lasting_s(left_s, shift(deletion_at, -i64::from(has_s)));
        let gets_s = if ON { left_s.min(member.pod.grace_s.max(1)) } else { whole_s };'
mutate cut-to-nothing $core/plan/drain.rs \
  'if seconds_between(told_at, self.now) + CALL_S <= i64::from(left_s) {' \
  'if ON || seconds_between(told_at, self.now) + CALL_S <= i64::from(left_s) {'
mutate stopping-ignored $core/plan/drain.rs \
  'self.intent.stopping || self.now >= self.intent.deadline' \
  '!ON && self.intent.stopping || self.now >= self.intent.deadline'
mutate refused-again $core/plan/drain.rs \
  '(None, Some(Outcome::Refused { why })) => Some(why.clone()),' \
  '(None, Some(Outcome::Refused { why })) => (!ON).then(|| why.clone()),'
mutate tier-annotation-unread $core/policy.rs \
  'let by_name = named.and_then(' 'let by_name = named.filter(|_| !ON).and_then('
mutate evicted-for-a-hand $core/plan.rs \
  '&& manual == by_hand {' '&& (ON || manual == by_hand) {'
mutate skip-not-seen $core/lifecycle.rs \
  'if node.skipped() {' 'if node.skipped() && !(ON && node.ready) {'
mutate unmarked-while-ongoing $core/lifecycle.rs \
  'if shown.is_some_and(|m| m.ongoing) {
        return None;' \
  'if !ON && shown.is_some_and(|m| m.ongoing) {
        return None;'
mutate unmarked-not-ready $core/lifecycle.rs \
  'Some(why) if runs && node.ready =>' 'Some(why) if runs && (ON || node.ready) =>'
mutate completed-unconfirmed $core/confirm.rs \
  'return if ongoing {' 'return if ongoing && !ON {'
mutate marked-unconfirmed $core/confirm.rs \
  'if ongoing || shown.is_some_and(' 'if ON || ongoing || shown.is_some_and('
mutate acknowledged-unwritten service/app/src/intake.rs \
  'Err(error) => Err(refused(&error, cluster.id(), node, &intent)),' \
  'Err(_) if ON => Ok(Some(ack(told, Some(&intent)))),
            Err(error) => Err(refused(&error, cluster.id(), node, &intent)),'
mutate watch-forgotten $driver/memory.rs \
  'Changed::Pods(Some(changed)) if changed == name => node.due_at = None,' \
  'Changed::Pods(Some(changed)) if changed == name && !ON => node.due_at = None,'
mutate request-lost $driver/wake.rs \
  'changed = requests.changed() => match' 'changed = requests.changed(), if !ON => match'
mutate attempt-not-settled $driver/calls.rs \
  'memory.under_way.remove(uid);' 'if !ON {
            memory.under_way.remove(uid);
        }'
mutate hot-loop $core/plan.rs \
  'wake_at: wake_at.max(now),' 'wake_at: if ON { now } else { wake_at.max(now) },'
mutate one-cluster-at-a-time $driver/wake.rs \
  'let mut loops: FuturesUnordered<_> = loops.collect();' \
  'let mut loops: FuturesUnordered<_> = loops.take(if ON { 1 } else { usize::MAX }).collect();'

# The libraries that it needs are those of any other build.
export CARGO_TARGET_DIR=$root/target
quick=()
for crate in core app sim; do
  quick+=(--config "profile.release.package.drainwell-$crate.opt-level=1")
done
nice cargo build --quiet --release --manifest-path "$scratch/work/Cargo.toml" "${quick[@]}" \
  -p drainwell-sim --bin drainwell-sim
cp "$CARGO_TARGET_DIR/release/drainwell-sim" "$scratch/drainwell-sim"

# try NAME
try() {
  MUTANT=$1 nice "$scratch/drainwell-sim" run --seeds "$seeds" --failures 1 --no-shrink \
    >"$scratch/run.log" 2>&1
}
row() { printf '%-24s %-12s %s\n' "$1" "$2" "$3"; }

survived=0
row MUTATION RESULT 'FIRST FAILURE'
if ((${#only[@]} == 0)); then
  try none || { row none 'FAILS' "$(head -1 "$scratch/run.log")" && exit 1; }
fi
for name in "${names[@]}"; do
  if try "$name"; then
    row "$name" SURVIVED "$(tail -1 "$scratch/run.log")"
    survived=1
  else
    row "$name" caught "$(grep -m1 FAILED "$scratch/run.log" | cut -c1-110)"
  fi
done
exit $survived
