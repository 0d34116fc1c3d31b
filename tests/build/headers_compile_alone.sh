#!/usr/bin/env bash
# Every public header compiles on its own: headers_compile_alone.sh COMPILER INCLUDE_DIR (holding zpp/...).
set -euo pipefail
export COMPILER=$1 INCLUDE_DIR=$2
compile_alone() {
  # Twice: its guard must work.
  printf '#include <%s>\n#include <%s>\n' "$1" "$1" |
    "$COMPILER" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I"$INCLUDE_DIR" -x c++ - ||
    { echo "<$1> does not compile alone" >&2; return 1; }
}
export -f compile_alone
headers=$(cd "$INCLUDE_DIR" && find zpp -name '*.h' | sort)
count=$(wc -l <<<"$headers")
[ "$count" -gt 10 ] || { echo "only $count headers under $INCLUDE_DIR/zpp" >&2; exit 1; }
xargs -P "$(nproc)" -I{} bash -c 'compile_alone {}' <<<"$headers"
echo "$count public headers compile alone"
