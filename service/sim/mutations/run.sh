#!/usr/bin/env bash
# Does the simulator notice when the service is wrong? Each mutation breaks one
# rule of core or driver in a scratch copy of the workspace; `drainwell-sim`
# has to fail on it. Takes long; not part of CI.
#
#   service/sim/mutations/run.sh [NAME...]
#
# SCRATCH: where the copy and its target folder go; SEEDS: how many are tried.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
scratch=${SCRATCH:-/tmp/drainwell-mutations}
seeds=${SEEDS:-1000}
only=("$@")
survived=0

rm -rf "$scratch/work"
mkdir -p "$scratch/work"
tar -C "$root" --exclude='./target*' --exclude='./.git' -cf - . | tar -C "$scratch/work" -xf -
# Cargo goes by times of change: the copy is newer than any earlier build.
find "$scratch/work" -name '*.rs' -exec touch {} +

sim() {
  CARGO_TARGET_DIR="$scratch/target" nice cargo build --quiet \
    --manifest-path "$scratch/work/Cargo.toml" -p drainwell-sim --bin drainwell-sim \
    >"$scratch/build.log" 2>&1
}

row() { printf '%-24s %-12s %s\n' "$1" "$2" "$3"; }

# mutate NAME FILE OLD NEW: OLD has to stand in FILE exactly once.
mutate() {
  local name=$1 file=$2
  if ((${#only[@]})) && [[ " ${only[*]} " != *" $name "* ]]; then return; fi
  cp "$scratch/work/$file" "$scratch/original"
  try "$@"
  cp "$scratch/original" "$scratch/work/$file"
}

try() {
  local name=$1 file=$2
  if ! OLD=$3 NEW=$4 perl -0pi -e '
      my $count = () = /\Q$ENV{OLD}\E/g;
      die "found $count times\n" unless $count == 1;
      s/\Q$ENV{OLD}\E/$ENV{NEW}/' "$scratch/work/$file" 2>"$scratch/perl.log"; then
    row "$name" 'NOT APPLIED' "$file: $(tail -1 "$scratch/perl.log")"
    survived=1
    return
  fi
  if ! sim; then
    row "$name" 'NOT BUILT' "$(grep -m1 '^error' "$scratch/build.log")"
    survived=1
    return
  fi
  if "$scratch/target/debug/drainwell-sim" run --seeds "$seeds" --failures 1 --no-shrink \
    >"$scratch/run.log" 2>&1; then
    row "$name" SURVIVED "$(tail -1 "$scratch/run.log")"
    survived=1
  else
    row "$name" caught "$(grep -m1 FAILED "$scratch/run.log" | cut -c1-110)"
  fi
}

core=service/core/src
driver=service/app/src/driver

row MUTATION RESULT 'FIRST FAILURE'
mutate tier-gate-off $core/plan.rs \
  'open || self.no_gates() || self.now >= member.latest_start' 'open || true'
mutate version-not-tested $core/edit.rs \
  'ops.push(
            "test",
            "/metadata/resourceVersion",
            json!(node.resource_version),
        );' ''
mutate deadline-loosened $core/merge.rs \
  '(!open.deadline_known || deadline < open.deadline)' '(!open.deadline_known || deadline != open.deadline)'
mutate foreign-taint-removed $core/edit.rs \
  'if intent.ours.contains(&Mark::Taint)
        && !taken_over
        &&' 'if !taken_over
        &&'
mutate marks-in-two-writes $core/edit.rs \
  'if intent.phase != Phase::Scheduled && node.termination_taint().is_none() {' \
  'if intent.reasserted > 0 && node.termination_taint().is_none() {'
mutate daemons-evicted $core/pod.rs \
  'owner == Some("DaemonSet") && tolerates(pod)' 'owner == Some("None") && tolerates(pod)'
mutate finished-evicted $core/pod.rs \
  'pod.finished
}' 'pod.finished && pod.grace_s == u32::MAX
}'
mutate forced-at-once $core/plan.rs \
  'Some(member.latest_start.min(shift(*since, patience_s)))' \
  'Some(member.latest_start.min(shift(*since, 0 * patience_s)))'
mutate came-back-again $core/plan.rs \
  'pod::tolerates(pod) && pod.created > intent.noticed' \
  'pod::tolerates(pod) && pod.created > intent.deadline'
mutate grace-of-zero $core/plan.rs \
  'seconds_between(self.now, self.intent.deadline).max(1)' \
  'seconds_between(self.now, self.intent.deadline).max(0)'
mutate assumed-shortens $core/plan.rs \
  'self.intent.deadline_known.then(|| {' '(self.intent.v > 0).then(|| {'
mutate stopping-ignored $core/plan.rs \
  'self.intent.stopping || self.now >= self.intent.deadline' \
  'self.now >= self.intent.deadline'
mutate skip-not-seen $core/lifecycle.rs \
  'if node.skipped() {' 'if node.skipped() && !node.ready {'
mutate unmarked-while-ongoing $core/lifecycle.rs \
  'if shown.is_some_and(|m| m.ongoing) {
        return None;' 'if shown.is_some_and(|m| m.ongoing && m.start.is_none()) {
        return None;'
mutate unmarked-not-ready $core/lifecycle.rs \
  'Some(why) if runs && node.ready =>' 'Some(why) if runs =>'
mutate completed-unconfirmed $core/confirm.rs \
  'return if ongoing {' 'return if ongoing && !vm.running {'
mutate acknowledged-unwritten service/app/src/intake.rs \
  'Err(error) => Err(refused(&error, cluster.id(), node, &intent)),' \
  'Err(_) => Ok(Some(ack(told, Some(&intent)))),'
mutate watch-forgotten $driver/memory.rs \
  'Changed::Pods(Some(changed)) if changed == name => node.due_at = None,' \
  'Changed::Pods(Some(changed)) if changed == name => {}'
mutate request-lost $driver/wake.rs \
  'changed = requests.changed() => match' \
  'changed = std::future::pending::<Result<(), watch::error::RecvError>>() => match'
mutate attempt-not-settled $driver/calls.rs \
  'memory.under_way.remove(uid);' ''
mutate hot-loop $core/plan.rs \
  'wake_at: wake_at.max(now),' 'wake_at: wake_at.min(now),'
exit $survived
