#!/usr/bin/env bash
# Installs the build, then builds and runs a consumer against it: install_test.sh BUILD_DIR CONSUMER_DIR COMPILER.
# The consumer has its own quant/codec.h and common/status.h, which must not shadow ours; the installed headers must
# compile alone; and nothing of the source tree may be needed.
set -euo pipefail
build_dir=$1 consumer_dir=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build_dir" --prefix "$work/prefix" >/dev/null
if grep -rnE '#include "(common|quant|topology|collectives|zero)/' "$work/prefix/include"; then
  echo "an installed header includes a sibling by a name that a consumer could shadow" >&2
  exit 1
fi
while IFS= read -r header; do
  grep -rqF "#include <$header>" "$work/prefix/include" ||
    { echo "<$header> is installed though no installed header needs it" >&2; exit 1; }
done < <(cd "$work/prefix/include" && find zpp -path '*/internal/*' -name '*.h')
bash "$(dirname "$0")/headers_compile_alone.sh" "$compiler" "$work/prefix/include"
cp -r "$consumer_dir" "$work/consumer"
cmake -S "$work/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" -j2 >/dev/null
"$work/build/consumer"

# The examples are a project of their own too.
cp -r "$(dirname "$0")/../../examples" "$work/examples"
cmake -S "$work/examples" -B "$work/examples-build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/examples-build" -j2 >/dev/null
timeout 100 "$work/examples-build/train_tiny"
