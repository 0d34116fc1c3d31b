#!/usr/bin/env bash
# lm_kernel_symbols.sh OBJECT...: the objects that are compiled for AVX2 share no inline function with others. The linker
# would keep one copy for all, perhaps one that this CPU cannot run.
set -euo pipefail
checked=0
for object in "$@"; do
  case "$object" in *kernels_avx2*) ;; *) continue ;; esac
  checked=$((checked + 1))
  shared=$(nm -C "$object" | grep -E ' [WVu] ' | grep -vE 'Eigen_avx2::|zpp::lm::avx2::|DW\.ref\.' || true)
  [ -z "$shared" ] || { echo "$object shares with other objects:"; echo "$shared"; exit 1; }
done
[ "$checked" -eq 1 ] || { echo "expected one object named kernels_avx2, found $checked"; exit 1; }
echo "no inline function is shared"
