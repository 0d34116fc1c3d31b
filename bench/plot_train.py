#!/usr/bin/env python3
"""Draws the JSON of `zpp train --json`.

    plot_train.py REPORT.json [REPORT.json ...] --out train.svg        (or .png, .pdf)

Loss curves over steps, of --compare both; over wall-clock time; and, where the run was audited, the relative error of
every bucket and the bits that were chosen for it.
"""
import argparse
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def fail(text):
    """Bad input: one sentence, exit code 2."""
    print(f"plot_train.py: {text}", file=sys.stderr)
    sys.exit(2)


def load(path):
    """The trainings in a report: [(name, run), ...]."""
    try:
        with open(path) as file:
            report = json.load(file)
        sides = [side for side in ("baseline", "compressed") if side in report]
        runs = [(side, report[side]) for side in sides] or [(path.rsplit("/", 1)[-1], report)]
        runs = [(name, run) for name, run in runs if run["steps"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{path} is no report of `zpp train --json`: {error}")
    if not runs:
        fail(f"{path} holds no steps")
    return report, runs


def smoothed(values, width):
    """Running mean of what is there, None left out."""
    out, window = [], []
    for value in values:
        if value is not None:
            window = (window + [value])[-width:]
        out.append(sum(window) / len(window) if window else float("nan"))
    return out


def seconds(steps):
    out, now = [], 0
    for step in steps:
        now += step["time_ms"] / 1e3
        out.append(now)
    return out


def draw_losses(axes, by_time, runs):
    width = max(1, max(len(run["steps"]) for _, run in runs) // 50)
    for index, (name, run) in enumerate(runs):
        steps = run["steps"]
        x = seconds(steps) if by_time else [step["step"] for step in steps]
        losses = [step["loss"] for step in steps]
        axes.plot(x, [float("nan") if y is None else y for y in losses], color=f"C{index}", alpha=0.25, linewidth=0.7)
        axes.plot(x, smoothed(losses, width), color=f"C{index}", label=name)
        if run["validation"] and not by_time:
            axes.plot([one["step"] for one in run["validation"]], [one["val_loss"] for one in run["validation"]], "o",
                      color=f"C{index}", markersize=5, label=f"{name}, held-out text")
    axes.set_xlabel("seconds of training" if by_time else "step")
    axes.set_ylabel("loss, nats per byte")
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)


def audited(runs):
    for _, run in reversed(runs):  # of --compare the compressed one
        audit = run.get("audit") or {}
        if audit.get("records"):
            return audit
    return None


def draw_audit(axes, audit, key, label):
    series = {}
    for record in audit["records"]:
        if record.get(key) is not None:
            series.setdefault(record["bucket"], []).append((record["step"], record[key]))
    for bucket, points in series.items():
        name = "all" if bucket == "all" else audit["buckets"][bucket]
        style = dict(color="black", linewidth=1.8) if bucket == "all" else dict(linewidth=1)
        if key == "bits":
            if bucket == "all":
                continue
            style["drawstyle"] = "steps-post"
        axes.plot(*zip(*points), marker=".", markersize=4, label=name, **style)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.grid(True, alpha=0.3)
    if 0 < len(axes.lines) <= 12:
        axes.legend(fontsize=7)


def draw(report, runs, title):
    audit = audited(runs)
    rows = 2 if audit else 1
    figure, axes = plt.subplots(rows, 2, figsize=(11, 4.4 * rows), layout="constrained", squeeze=False)
    draw_losses(axes[0][0], False, runs)
    draw_losses(axes[0][1], True, runs)
    if audit:
        draw_audit(axes[1][0], audit, "rel_error", "relative error of what is encoded")
        draw_audit(axes[1][1], audit, "bits", "bits of an element across nodes")
    figure.suptitle(title)
    return figure


def title_of(report):
    text = f"{report['model']} model, {report['parameters']:,} parameters, {report['ranks']} ranks on {report['nodes']} nodes"
    if report.get("speedup"):
        text += f"; compressed {report['speedup']:.2f}x as fast, validation loss {report['val_loss_percent']:+.2f} %"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+", help="JSON of `zpp train --json`")
    parser.add_argument("--out", required=True, help="a file whose ending says the format: .svg, .png, .pdf")
    parser.add_argument("--title")
    args = parser.parse_args()
    loaded = [load(path) for path in args.reports]
    runs = [run for _, more in loaded for run in more]
    draw(loaded[0][0], runs, args.title or title_of(loaded[0][0])).savefig(args.out, dpi=150)
    print(f"plot_train.py: wrote {args.out}")


if __name__ == "__main__":
    main()
