"""The `train` section of figures.py: steps of a model of 21.5 M parameters over a shaped link, and the optimizer."""
import json
import os
import statistics

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 5
RATE_MBITS = 50  # slow enough that the uncompressed step is communication


def config(stage):
    """bf16, 4 ranks; stage 3 gathers again for the backward pass, and hpZ keeps that inside the node."""
    zero = {"stage": stage}
    if stage == 3:
        zero |= {"stage3_max_reuse_distance": 0, "zero_hpz_partition_size": 2}
    return {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 16, "gradient_clipping": 1.0,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.01}},
            "zero_optimization": zero, "zero_pp": {"enabled": True}}


def step_seconds(run):
    """Median; the first step also compiles plans and touches memory."""
    return statistics.median(step["time_ms"] for step in run["steps"][1:]) / 1e3


def across(run):
    return run["steps"][-1]["wire_bytes"]["inter"]


def compare(figures, stage, rate):
    path = figures.path(f"train-stage{stage}.config.json")
    with open(path, "w") as file:
        json.dump(config(stage), file)
    return figures.run(f"train-stage{stage}-{rate}",
                       [os.path.join(HERE, "shaped_nodes.sh"), "--nodes", "2", "--ranks-per-node", "2", "--rate", rate, "--",
                        figures.zpp, "train", "--model", "20m", "--config", path, "--steps", str(STEPS), "--compare",
                        "--json", "{json}"])


def train(figures):
    optimizer(figures)
    if os.geteuid() != 0:
        return figures.note("train", "steps not measured: kernel-shaped links need root")
    for stage, bytes_bar in ((2, 0.28), (3, 0.27)):
        title = f"stage {stage}, 2 x 2, {RATE_MBITS} Mbit/s"
        slow = compare(figures, stage, f"{RATE_MBITS}mbit")
        free = compare(figures, stage, "none")
        base_s, coded_s = step_seconds(slow["baseline"]), step_seconds(slow["compressed"])
        figures.add("train", f"{title}: parameters, millions", slow["parameters"] / 1e6, 20)
        figures.add("train", f"{title}: uncompressed bf16 step, share that is communication",
                    1 - step_seconds(free["baseline"]) / base_s, 0.95)
        figures.add("train", f"{title}: speed-up", base_s / coded_s, 3, text=f"{base_s / coded_s:.2f} ({base_s:.2f} s -> {coded_s:.2f} s)")
        figures.add("train", f"{title}: bytes across nodes, of uncompressed", across(slow["compressed"]) / across(slow["baseline"]),
                    bytes_bar, at_least=False)


def optimizer(figures):
    program = os.path.join(figures.build, "bench", "optimizer_benchmark")
    if not os.path.exists(program):
        return figures.note("train", "optimizer not measured: optimizer_benchmark is not built")
    report = figures.run("optimizer", [program, "--benchmark_out={json}", "--benchmark_out_format=json"])
    for row in report["benchmarks"]:
        if "of_roof" in row:
            bar = 0.8 if row["name"].startswith("adamw/bf16") else None
            figures.add("train", f"{row['name']}: of its roof", row["of_roof"], bar)
    return None
