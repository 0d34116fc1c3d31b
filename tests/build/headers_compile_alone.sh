#!/usr/bin/env bash
# Every public header compiles on its own: headers_compile_alone.sh COMPILER INCLUDE_DIR (holding zpp/...).
set -euo pipefail
compiler=$1 include_dir=$2
source=$(mktemp --suffix=.cc)
trap 'rm -f "$source"' EXIT
count=0
while IFS= read -r header; do
  printf '#include <%s>\n#include <%s>\nint main() {}\n' "$header" "$header" >"$source"
  "$compiler" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I"$include_dir" "$source" ||
    { echo "<$header> does not compile alone" >&2; exit 1; }
  count=$((count + 1))
done < <(cd "$include_dir" && find zpp -name '*.h' | sort)
[ "$count" -gt 10 ] || { echo "only $count headers under $include_dir/zpp" >&2; exit 1; }
echo "$count public headers compile alone"
