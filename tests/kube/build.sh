#!/usr/bin/env bash
# Prints the folder that holds the control plane of the end-to-end tests: etcd,
# kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, which
# are links to one binary. Builds it if these sources were not built before.
# A folder given in KUBEBUILDER_ASSETS is printed as it is.
set -euo pipefail

if [[ -n "${KUBEBUILDER_ASSETS:-}" ]]; then
  printf '%s\n' "$KUBEBUILDER_ASSETS"
  exit 0
fi

readonly version=1.37.2
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache_dir=$(cd "$source_dir/../.." && pwd)/target/kube
digest=$(cd "$source_dir" && cat go.mod go.sum main.go build.sh | sha256sum | cut -c 1-16)
result=$cache_dir/$digest

if [[ ! -x $result/kubectl ]]; then
  if ! command -v go >/dev/null; then
    echo "build.sh: the control plane is compiled from source and there is no 'go' in PATH:" \
      "install Go from https://go.dev/dl/, or set KUBEBUILDER_ASSETS to a folder with the binaries." >&2
    exit 1
  fi
  mkdir -p "$cache_dir"
  # Two callers at once would compile everything twice: the second one waits.
  exec 9>"$cache_dir/lock"
  flock 9
fi

if [[ ! -x $result/kubectl ]]; then
  echo "build.sh: compiling Kubernetes $version into $result: about 15 minutes on two cores" \
    "the first time, under a minute when Go's build cache is warm." >&2
  unfinished=$cache_dir/.$digest.$$
  trap 'rm -rf "$unfinished"' EXIT
  mkdir "$unfinished"
  package=k8s.io/component-base/version
  (cd "$source_dir" && go build -buildvcs=false \
    -ldflags="-s -w -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=37" \
    -o "$unfinished/kube" .)
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    ln -s kube "$unfinished/$name"
  done
  rm -rf "$result"
  mv "$unfinished" "$result"
  echo "build.sh: done" >&2
fi

printf '%s\n' "$result"
