#!/usr/bin/env bash
# Prints the path of the Pub/Sub server that the tests of pulling use. Builds it
# if these sources were not built before.
set -euo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache_dir=$(cd "$source_dir/../.." && pwd)/target/pubsub
digest=$(cd "$source_dir" && cat go.mod go.sum ./*.go build.sh | sha256sum | cut -c 1-16)
result=$cache_dir/$digest

if [[ ! -x $result ]]; then
  if ! command -v go >/dev/null; then
    echo "build.sh: Pub/Sub's in-memory server is compiled from source and there is no 'go' in PATH:" \
      "install Go from https://go.dev/dl/." >&2
    exit 1
  fi
  mkdir -p "$cache_dir"
  # Two callers at once would compile everything twice: the second one waits.
  exec 9>"$cache_dir/lock"
  flock 9
fi

if [[ ! -x $result ]]; then
  echo "build.sh: compiling Pub/Sub's in-memory server into $result: about a minute on two cores" \
    "the first time." >&2
  unfinished=$cache_dir/.$digest.$$
  trap 'rm -f "$unfinished"' EXIT
  (cd "$source_dir" && go build -buildvcs=false -ldflags="-s -w" -o "$unfinished" .)
  mv "$unfinished" "$result"
fi

printf '%s\n' "$result"
