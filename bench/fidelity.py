#!/usr/bin/env python3
"""What compression does to training: `zpp train` under many settings, each paired with the uncompressed run of its seed.

    python3 bench/fidelity.py --build build/release --out build/fidelity [--minutes 60] [--seeds 1,2,3] [--only NAME,..]

Each run's report is kept as OUT/NAME-seedS-stepsN.json; what is there, of the same command, is not run again: stop it
whenever you like, and go on later. The settings that have a bar come first. Writes OUT/fidelity.md, a table with means
over seeds, [lowest, highest], and what the audit measured. Exit code 1 when a bar is missed, 3 when runs are missing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

LONG_STEPS = 3  # times --steps
LONG = ("default2", "default3")  # that are also run so long, with the first seed
DEFAULT = {"stage": 2, "weights": True, "gradients": True}


def setting(label, layout="out_in", bar=None, worst=None, audit=False, **keys):
    """`keys`: stage, weights and gradients (quantized or not), anything else is a key of zero_pp."""
    return {"label": label, "layout": layout, "bar": bar, "worst": worst, "audit": audit, "keys": keys}


# In the order in which they run. `bar` is of |mean|, `worst` of every single run, in percent of the validation loss.
SETTINGS = {
    "baseline": setting("uncompressed", stage=2, weights=False, gradients=False),
    "default2": setting("default, stages 1-2: int4 differences, int8/int4 sqrt, feedback, period 100", bar=0.7, worst=1.5,
                        audit=True, **DEFAULT),
    "default3": setting("default, stage 3: int8 gather, the same gradients", bar=0.7, worst=1.5,
                        **{**DEFAULT, "stage": 3}),
    "gradients8": setting("gradients int8/int8 only", bar=0.4, stage=2, weights=False, gradients=True, quant_bits=8),
    "differences4": setting("weight differences int4 only", bar=0.2, stage=2, weights=True, gradients=False),
    "gather8": setting("weight gathers int8 only", bar=0.3, stage=3, weights=True, gradients=False),
    "in_out-baseline": setting("uncompressed, weights stored (in, out)", layout="in_out", stage=2, weights=False,
                               gradients=False),
    "in_out-default2": setting("default, stages 1-2, weights stored (in, out)", layout="in_out", bar=1.5, **DEFAULT),
    "linear": setting("default with the linear code", audit=True, gradient_code="linear", **DEFAULT),
    "off": setting("default without feedback", audit=True, error_feedback="off", **DEFAULT),
    "both4": setting("int4/int4, feedback on both hops", audit=True, intra_bits=4, error_feedback="both", **DEFAULT),
    "gather4": setting("weight gathers int4 only", stage=3, weights=True, gradients=False, weight_bits=4),
    "stochastic": setting("default with stochastic rounding", audit=True, rounding="stochastic", **DEFAULT),
    "period1": setting("default, every step exact", bar=0.0, worst=0.0, quant_period=1, **DEFAULT),
    "period10": setting("default, period 10", quant_period=10, **DEFAULT),
    "period0": setting("default, never exact", quant_period=0, **DEFAULT),
    "in_out-linear": setting("linear code, weights stored (in, out)", layout="in_out", gradient_code="linear", **DEFAULT),
    "in_out-off": setting("no feedback, weights stored (in, out)", layout="in_out", error_feedback="off", **DEFAULT),
    "in_out-linear-off": setting("linear code without feedback, weights stored (in, out)", layout="in_out",
                                 gradient_code="linear", error_feedback="off", **DEFAULT),
}
BARRED = [name for name, one in SETTINGS.items() if one["bar"] is not None or "baseline" in name]
FREE = [name for name in SETTINGS if name not in BARRED]

# What the audit of the default must show: (key, how a run's steps become one figure, bound, at least?, text).
AUDIT_BARS = [
    ("cosine", "mean", 0.98, True, "cosine with the true gradient"),
    ("zeroed_share", "mean", 0.05, False, "nonzero elements that hop 2 sends as zero"),
    ("final_zeroed_share", "mean", 0.01, False, "nonzero elements that are zero in the sum"),
    ("update_error", "mean", 0.10, False, "error of Adam's update"),
    ("drift", "max", 0.002, False, "drift of replicas, of the weights"),
    ("unseen_rows_hit", "sum", 0, False, "rows that never had a gradient and received something"),
]
FIRST_AUDITED_STEP = 21  # Adam's moments and residuals start from nothing

CLAIMS = """## What must not be claimed
- That compression costs nothing, that a setting is *better* than uncompressed, or that feedback or the sqrt code improves the
  loss: effects differ from seed to seed by more than most of these means. One run says nothing below 0.5 %.
- That a relative error of the gradient predicts the loss, or that any layout of the weights does.
- That a shorter period improves quality, or that an offset heals (or grows) in longer runs.
- Anything about models other than this one (a byte-level network of 0.67 M parameters), other data, more than 4 ranks,
  16-bit gradients or other optimizers than AdamW.
- That zero rows stay zero with feedback: rows that never had a gradient do, rows that had one receive what is late.
"""


def config_of(keys):
    keys = dict(keys)
    stage, weights, gradients = keys.pop("stage"), keys.pop("weights"), keys.pop("gradients")
    return {
        "train_batch_size": 512,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01}},
        "zero_optimization": {"stage": stage, "zero_quantized_weights": weights, "zero_quantized_gradients": gradients},
        "zero_pp": {"enabled": weights or gradients, **keys},
    }


class Runs:
    def __init__(self, args):
        self.args = args
        self.zpp = os.path.join(args.build, "cli", "zpp")
        self.end = time.monotonic() + 60 * args.minutes
        self.longest_s = {}
        if not os.access(self.zpp, os.X_OK):
            sys.exit(f"fidelity.py: {self.zpp} is not there: build the target zpp first")
        os.makedirs(args.out, exist_ok=True)
        self.chosen = [name for name in SETTINGS if not args.only or name in args.only or "baseline" in name]

    def path(self, name, seed, steps):
        return os.path.join(self.args.out, f"{name}-seed{seed}-steps{steps}")

    def command(self, name, seed, steps):
        one = SETTINGS[name]
        base = self.path(name, seed, steps)
        command = ["train", "--ranks", "4", "--nodes", "2", "--layout", one["layout"], "--seed", str(seed),
                   "--steps", str(steps), "--timeout", "600", "--config", base + ".config"]
        if one["audit"]:
            command += ["--audit", "1", "--audit-update"]
        if self.args.data:
            command += ["--data", self.args.data]
        return command

    def report(self, name, seed, steps):
        """The run's JSON when it is there and of this very command and configuration, else None."""
        try:
            with open(self.path(name, seed, steps) + ".json") as file:
                report = json.load(file)
        except (OSError, ValueError):
            return None
        asked = {"command": self.command(name, seed, steps), "config": config_of(SETTINGS[name]["keys"])}
        return report if report.get("asked") == asked and report.get("final") else None

    def run(self, name, seed, steps):
        """False when there is no time left for it."""
        if self.report(name, seed, steps) and not self.args.fresh:
            return True
        left_s = self.end - time.monotonic()
        if left_s < 1.2 * self.longest_s.get(steps, 0) or left_s < 5:
            return False
        base = self.path(name, seed, steps)
        command = self.command(name, seed, steps)
        config = config_of(SETTINGS[name]["keys"])
        with open(base + ".config", "w") as file:
            json.dump(config, file, indent=1)
        begin = time.monotonic()
        run = subprocess.Popen([self.zpp, *command, "--json", base + ".part"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = run.communicate(timeout=left_s)
        except subprocess.TimeoutExpired:
            run.terminate()  # it ends its ranks
            run.communicate()
            return False
        took_s = time.monotonic() - begin
        self.longest_s[steps] = max(took_s, self.longest_s.get(steps, 0))
        if run.returncode != 0:
            sys.exit(f"fidelity.py: 'zpp {' '.join(command)}' failed with exit code {run.returncode}:\n{output}")
        with open(base + ".part") as file:
            report = json.load(file)
        report["asked"] = {"command": command, "config": config}
        with open(base + ".part", "w") as file:
            json.dump(report, file)
        os.rename(base + ".part", base + ".json")
        print(f"{name} seed {seed}, {steps} steps: {report['final']['val_loss']:.4f} in {took_s:.0f} s", flush=True)
        return True

    def plan(self):
        """(name, seed, steps) in the order of importance."""
        steps, seeds = self.args.steps, self.args.seeds
        needed = {baseline_of(name) for name in self.chosen if "baseline" not in name}
        chosen = [name for name in self.chosen if "baseline" not in name or name in needed]
        for seed in seeds:
            yield from ((name, seed, steps) for name in BARRED if name in chosen and name != "period1")
        long = [name for name in LONG if name in chosen]
        for name in ["baseline", *long] if long else []:
            yield name, seeds[0], LONG_STEPS * steps
        for seed in seeds:
            yield from ((name, seed, steps) for name in [*FREE, "period1"] if name in chosen)


def baseline_of(name):
    return "in_out-baseline" if SETTINGS[name]["layout"] == "in_out" else "baseline"


def differences(runs, name, steps):
    """Percent above the uncompressed run of the same seed, per seed that has both."""
    out = {}
    for seed in runs.args.seeds:
        report, base = runs.report(name, seed, steps), runs.report(baseline_of(name), seed, steps)
        if report and base:
            out[seed] = 100 * (report["final"]["val_loss"] / base["final"]["val_loss"] - 1)
    return out


def audited(report, key, how):
    """One figure of a run's audit, of all compressed gradients together; None when it was not measured."""
    values = [record[key] for record in report.get("audit", {}).get("records", [])
              if record["bucket"] == "all" and record["step"] >= FIRST_AUDITED_STEP and key in record]
    if not values:
        return None
    return {"mean": statistics.fmean, "max": max, "min": min, "sum": sum, "last": lambda v: v[-1]}[how](values)


def over_seeds(runs, name, key, how):
    reports = [runs.report(name, seed, runs.args.steps) for seed in runs.args.seeds]
    values = [audited(report, key, how) for report in reports if report]
    return [value for value in values if value is not None]


def spread(values, form):
    if not values:
        return ""
    text = form.format(statistics.fmean(values))
    return text if len(values) == 1 else f"{text} [{form.format(min(values))}, {form.format(max(values))}]"


class Table:
    def __init__(self, runs):
        self.runs = runs
        self.lines = []
        self.missed, self.missing = [], []

    def verdict(self, what, met):
        if not met:
            self.missed.append(what)
        return "met" if met else "MISSED"

    def loss_row(self, name, steps):
        one = SETTINGS[name]
        found = differences(self.runs, name, steps)
        wanted = self.runs.args.seeds if steps == self.runs.args.steps else self.runs.args.seeds[:1]
        if len(found) < len(wanted):
            self.missing.append(f"{name}, {steps} steps: {len(found)} of {len(wanted)} seeds")
        if not found:
            return
        values = list(found.values())
        losses = [self.runs.report(name, seed, steps)["final"]["val_loss"] for seed in found]
        bar = ""
        if one["bar"] is not None:
            met = abs(statistics.fmean(values)) <= one["bar"]
            met = met and all(abs(value) <= (one["worst"] if one["worst"] is not None else 1e9) for value in values)
            each = "" if one["worst"] is None else f", each <= {one['worst']:g}"
            bar = f"<= {one['bar']:g}{each}: {self.verdict(f'{name}, {steps} steps', met)}"
        label = one["label"] if steps == self.runs.args.steps else f"{one['label']}; {steps} steps"
        self.lines.append(f"| {label} | {len(found)} | {statistics.fmean(losses):.4f} | {spread(values, '{:+.2f}')} | {bar} |")

    def losses(self):
        self.lines += [f"# Fidelity: {self.runs.args.steps} steps, 4 ranks as 2 nodes x 2, paired by seed", "",
                       "| setting | seeds | validation loss | % against uncompressed, mean [lowest, highest] | bar |",
                       "|---|---|---|---|---|"]
        for name in self.runs.chosen:
            if "baseline" not in name:
                self.loss_row(name, self.runs.args.steps)
        for name in LONG:
            if name in self.runs.chosen:
                self.loss_row(name, LONG_STEPS * self.runs.args.steps)
        base = [self.runs.report("baseline", seed, self.runs.args.steps) for seed in self.runs.args.seeds]
        base = [report["final"]["val_loss"] for report in base if report]
        self.lines += ["", f"Uncompressed: {spread(base, '{:.4f}')} over {len(base)} seeds."]

    def audits(self):
        columns = [("cosine", "mean", "cosine", "{:.4f}"), ("cosine", "min", "lowest step", "{:.4f}"),
                   ("rel_error", "mean", "hop 2 error", "{:.3f}"), ("true_rel_error", "mean", "one-step error", "{:.3f}"),
                   ("zeroed_share", "mean", "hop 2 zeros", "{:.2%}"), ("final_zeroed_share", "mean", "zeros in the sum", "{:.2%}"),
                   ("update_error", "mean", "Adam's update", "{:.3f}"), ("sum_error", "last", "summed error", "{:.4f}"),
                   ("drift", "max", "drift", "{:.1e}")]
        self.lines += ["", "## What the audit measured", f"All matrices together, mean over steps {FIRST_AUDITED_STEP} to the last.", "",
                       "| setting | seeds | " + " | ".join(column[2] for column in columns) + " |",
                       "|---" * (len(columns) + 2) + "|"]
        for name, one in SETTINGS.items():
            cells = [over_seeds(self.runs, name, key, how) for key, how, _, _ in columns]
            if one["audit"] and cells[0]:
                texts = [form.format(statistics.fmean(cell)) if cell else "" for cell, (_, _, _, form) in zip(cells, columns)]
                self.lines.append(f"| {one['label']} | {len(cells[0])} | " + " | ".join(texts) + " |")

    def audit_bars(self):
        self.lines += ["", "| of the default | measured, mean [lowest, highest] | bar |", "|---|---|---|"]
        for key, how, bound, at_least, text in AUDIT_BARS:
            values = over_seeds(self.runs, "default2", key, how)
            if not values:
                continue
            met = all(value >= bound if at_least else value <= bound for value in values)
            sign = ">=" if at_least else "<="
            self.lines.append(f"| {text} ({how}) | {spread(values, '{:.4g}')} | {sign} {bound:g}: {self.verdict(text, met)} |")

    def write(self):
        self.losses()
        self.audits()
        self.audit_bars()
        if self.missing:
            self.lines += ["", "## Not run", *[f"- {one}" for one in self.missing]]
        text = "\n".join([*self.lines, "", CLAIMS])
        with open(os.path.join(self.runs.args.out, "fidelity.md"), "w") as file:
            file.write(text)
        print(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=180)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--fresh", action="store_true", help="run again what is there already")
    parser.add_argument("--data", help="text to train on instead of the C++ standard library's headers")
    args = parser.parse_args()
    unknown = [name for name in args.only if name not in SETTINGS]
    if unknown:
        parser.error(f"there is no setting '{unknown[0]}'; there are {', '.join(SETTINGS)}")
    return args


def main():
    runs = Runs(parse())
    for name, seed, steps in runs.plan():
        if not runs.run(name, seed, steps):
            print("no time left", flush=True)
            break
    table = Table(runs)
    table.write()
    if table.missed:
        sys.exit(1)
    sys.exit(3 if table.missing else 0)


if __name__ == "__main__":
    main()
