#!/usr/bin/env bash
# Runs a command as the ranks of several nodes on this one machine: every node is a network and an IPC namespace, so its
# ranks share memory among themselves only, and the nodes are joined by links that the kernel shapes. Needs root.
#
#   shaped_nodes.sh [--nodes N] [--ranks-per-node R] [--rate RATE] [--timeout SECONDS] -- COMMAND [ARGS...]
#
#   --nodes N            2 to 64 nodes (2)
#   --ranks-per-node R   ranks on each (1)
#   --rate RATE          of every link in each direction: 100mbit, 1gbit, 10gbit, ... or none (1gbit)
#   --timeout SECONDS    give up after that long (600)
#
# COMMAND is started once per rank with torchrun's variables. Rank 0's output is forwarded; the first rank that fails is
# quoted. Exit code: the first non-zero one of a rank, 2 for a usage error, 124 when time is up. Two nodes are joined
# directly, more by a bridge in a namespace of its own. No interface of the host is touched, and whatever happens to this
# script (SIGKILL as well), its namespaces and processes go: a janitor in another session waits for its end.
set -euo pipefail

die() { echo "shaped_nodes.sh: $1" >&2; exit 2; }

# --- The janitor: `shaped_nodes.sh --clean-up-after SCRATCH NAMESPACE...` reads until the script's end closes the pipe.
if [ "${1-}" = --clean-up-after ]; then
  trap '' INT TERM HUP PIPE
  set +e
  scratch=$2; shift 2
  cat >/dev/null
  for namespace in "$@"; do
    pids=$(ip netns pids "$namespace" 2>/dev/null)
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
    ip netns del "$namespace" 2>/dev/null
  done
  rm -rf "$scratch"
  exit 0
fi

nodes=2 ranks_per_node=1 rate=1gbit timeout_s=600
integer() { [[ "$2" =~ ^[0-9]{1,5}$ ]] && [ "$2" -ge "$3" ] && [ "$2" -le "$4" ] || die "$1 takes a number from $3 to $4, not '$2'"; }
while [ $# -gt 0 ]; do
  flag=$1
  case "$flag" in
    --) shift; break ;;
    -h|--help) sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    --nodes|--ranks-per-node|--rate|--timeout) [ $# -ge 2 ] || die "$flag needs a value" ;;
    *) die "unknown argument '$flag' (the command comes after --)" ;;
  esac
  case "$flag" in
    --nodes) integer "$flag" "$2" 2 64; nodes=$2 ;;
    --ranks-per-node) integer "$flag" "$2" 1 64; ranks_per_node=$2 ;;
    --timeout) integer "$flag" "$2" 1 86400; timeout_s=$2 ;;
    --rate) [[ "$2" =~ ^([1-9][0-9]{0,5}(k|m|g)bit|none)$ ]] || die "--rate takes something like 1gbit, 500mbit or none, not '$2'"
            rate=$2 ;;
  esac
  shift 2
done
[ $# -gt 0 ] || die "no command: shaped_nodes.sh --nodes 2 --rate 1gbit -- COMMAND"
command -v "$1" >/dev/null || die "no such command: $1"
[ "$(id -u)" -eq 0 ] || die "needs root, to make network namespaces"
for tool in ip tc nsenter unshare setsid; do command -v "$tool" >/dev/null || die "needs '$tool' (iproute2, util-linux)"; done

# --- Names, and the janitor before anything that it has to clean up.
id="zpp$$"
scratch=$(mktemp -d)
namespaces=()
for ((n = 0; n < nodes; n++)); do namespaces+=("$id-n$n"); done
[ "$nodes" -gt 2 ] && namespaces+=("$id-bridge")
exec {alive}> >(exec setsid bash "$0" --clean-up-after "$scratch" "${namespaces[@]}")
janitor=$!
declare -A rank_of=()   # pid -> rank, of those that still run

signal_ranks() { local pid; for pid in "${!rank_of[@]}"; do kill "-$1" -- "-$pid" 2>/dev/null || true; done; }
finish() {
  trap - EXIT
  if [ ${#rank_of[@]} -gt 0 ]; then signal_ranks TERM; sleep 1; fi
  exec {alive}>&-
  wait "$janitor" 2>/dev/null || true
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# --- Links.
rate_to_bits() {
  case "$1" in *kbit) echo "${1%kbit}000" ;; *mbit) echo "${1%mbit}000000" ;; *gbit) echo "${1%gbit}000000000" ;; esac
}
shape() {  # namespace, device: what it sends from now on
  [ "$rate" != none ] || return 0
  # 1.6 ms of the rate, as the kernel's timer needs, but not less than what fits a few full-size segments.
  local burst=$(($(rate_to_bits "$rate") / 8 * 16 / 10000))
  [ "$burst" -ge 262144 ] || burst=262144
  tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst "$burst" latency 50ms
}
address() { echo "10.88.0.$(($1 + 1))"; }
bring_up() {  # node
  local ns=${namespaces[$1]}
  ip -n "$ns" addr add "$(address "$1")/24" dev link0
  ip -n "$ns" link set lo up
  ip -n "$ns" link set link0 up
  shape "$ns" link0
}

for ns in "${namespaces[@]}"; do ip netns add "$ns"; done
if [ "$nodes" -eq 2 ]; then
  ip link add link0 netns "$id-n0" type veth peer name link0 netns "$id-n1"
else
  ip -n "$id-bridge" link add name bridge0 type bridge
  ip -n "$id-bridge" link set bridge0 up
  for ((n = 0; n < nodes; n++)); do
    ip link add link0 netns "$id-n$n" type veth peer name "port$n" netns "$id-bridge"
    ip -n "$id-bridge" link set "port$n" master bridge0 up
    shape "$id-bridge" "port$n"
  done
fi
for ((n = 0; n < nodes; n++)); do bring_up "$n"; done
# A link is usable when the kernel says so, some time after `up`.
for ((n = 0; n < nodes; n++)); do
  for ((try = 0; ; try++)); do
    ip -n "$id-n$n" -br link show link0 | grep -q ' UP ' && break
    [ "$try" -lt 100 ] || { echo "shaped_nodes.sh: the link of node $n does not come up" >&2; exit 1; }
    sleep 0.05
  done
done

# --- Ranks. A sleeper per node holds the IPC namespace that its ranks enter.
world=$((nodes * ranks_per_node))
start_rank() {  # becomes the command, in a session of its own
  exec {alive}>&- </dev/null
  [ "$rank" -eq 0 ] || exec >/dev/null 2>"$scratch/rank$rank"
  export RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$local LOCAL_WORLD_SIZE=$ranks_per_node GROUP_RANK=$n
  export MASTER_ADDR=$(address 0) MASTER_PORT=29500
  exec setsid ip netns exec "$id-n$n" nsenter --ipc="/proc/$sleeper/ns/ipc" -- "$@"
}
for ((n = 0; n < nodes; n++)); do
  ip netns exec "$id-n$n" unshare --ipc sleep "$((timeout_s + 60))" {alive}>&- &
  sleeper=$!
  disown
  for ((try = 0; ; try++)); do
    [ "$(readlink "/proc/$sleeper/ns/ipc" || true)" != "$(readlink /proc/self/ns/ipc)" ] && [ -e "/proc/$sleeper/ns/ipc" ] && break
    [ "$try" -lt 100 ] || { echo "shaped_nodes.sh: no IPC namespace for node $n" >&2; exit 1; }
    sleep 0.02
  done
  for ((local = 0; local < ranks_per_node; local++)); do
    rank=$((n * ranks_per_node + local))
    start_rank "$@" &
    rank_of[$!]=$rank
  done
done
# --- The first failure decides; the others get a moment to notice it by themselves.
first_code=0 first_rank=-1
end=$((SECONDS + timeout_s))
while [ ${#rank_of[@]} -gt 0 ]; do
  if [ "$SECONDS" -ge "$end" ]; then
    [ "$first_code" -ne 0 ] || { first_code=124; echo "shaped_nodes.sh: time is up after $timeout_s s" >&2; }
    break
  fi
  for pid in "${!rank_of[@]}"; do
    kill -0 "$pid" 2>/dev/null && continue
    code=0; wait "$pid" || code=$?
    if [ "$code" -ne 0 ] && [ "$first_code" -eq 0 ]; then
      first_code=$code first_rank=${rank_of[$pid]}
      [ $((SECONDS + 5)) -ge "$end" ] || end=$((SECONDS + 5))
    fi
    unset "rank_of[$pid]"
  done
  sleep 0.05
done
if [ "$first_rank" -gt 0 ] && [ -s "$scratch/rank$first_rank" ]; then
  sed "s/^/[rank $first_rank] /" "$scratch/rank$first_rank" >&2
fi
exit "$first_code"
