#!/usr/bin/env python3
"""Size against bandwidth and speed-up, from the JSON of `zpp bw --json`.

    plot.py REPORT.json [REPORT.json ...] --out plot.svg        (or .png, .pdf)

Each report is one collective at one pair of encodings. Reports of the same collective share their uncompressed curve's
colour; the left panel shows bus bandwidth, the right one the speed-up.
"""
import argparse
import json
import numbers
import sys

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size_text(size, _position=None):
    for unit, name in UNITS:
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} B"


def refuse(text):
    """Bad input: one sentence, exit code 2."""
    print(f"plot.py: {text}", file=sys.stderr)
    sys.exit(2)


def check_row(row):
    for side in ("baseline", "compressed"):
        if (side == "baseline" or row.get(side)) and not isinstance(row[side]["bus_bw"], numbers.Real):
            raise ValueError(f"a row whose {side} bus_bw is no number")
    if not isinstance(row["size"], numbers.Real) or row.get("compressed") and not isinstance(row["speedup"], numbers.Real):
        raise ValueError("a row whose size or speedup is no number")
    return row


def load(path):
    try:
        with open(path) as file:
            report = json.load(file)
        rows = [check_row(row) for row in report["results"] if "baseline" in row]
        missing = {"collective", "ranks", "nodes", "dtype"} - report.keys()
        if missing:
            raise ValueError(f"without {', '.join(sorted(missing))}")
        encoding(report)
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        refuse(f"{path} is no report of `zpp bw --json`: {type(error).__name__} {error}")
    if not rows:
        refuse(f"{path} holds no results")
    report["results"] = sorted(rows, key=lambda row: row["size"])
    return report


def encoding(report):
    spec = report["spec"]
    return spec["intra"] if spec["intra"] == spec["inter"] else f"{spec['intra']} inside, {spec['inter']} across"


def curve(report, side):
    rows = [row for row in report["results"] if row.get(side)]
    return [row["size"] for row in rows], [row[side]["bus_bw"] for row in rows]


def save(reports, title, out):
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py: matplotlib is missing: pip install -r bench/requirements.txt")
    matplotlib.use("Agg")
    try:
        draw(reports, title).savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        refuse(f"cannot write {out}: {error}")


def draw(reports, title):
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    colours = {}
    for report in reports:
        name = report["collective"]
        if name not in colours:
            colours[name] = f"C{len(colours)}"
            left.plot(*curve(report, "baseline"), "o--", color=colours[name], label=f"{name}, uncompressed")
        shade = 1 - 0.45 * sum(1 for other in reports[:reports.index(report)] if other["collective"] == name)
        sizes, bandwidth = curve(report, "compressed")
        if not sizes:
            continue
        style = dict(color=colours[name], alpha=max(shade, 0.3))
        left.plot(sizes, bandwidth, "s-", label=f"{name}, {encoding(report)}", **style)
        gains = [row["speedup"] for row in report["results"] if row.get("compressed")]
        right.plot(sizes, gains, "s-", label=f"{name}, {encoding(report)}", **style)
    right.axhline(1, color="0.6", linewidth=0.8)
    for axes, label in ((left, "bus bandwidth, GB/s of uncompressed bytes"), (right, "speed-up over uncompressed")):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(size_text))
        axes.tick_params(axis="x", rotation=30)
        axes.set_xlabel("size of the vector")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(True, alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=8)
    figure.suptitle(title)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+", help="JSON of `zpp bw --json`")
    parser.add_argument("--out", required=True, help="a file whose ending says the format: .svg, .png, .pdf")
    parser.add_argument("--title")
    args = parser.parse_args()
    reports = [load(path) for path in args.reports]
    first = reports[0]
    title = args.title or f"{first['ranks']} ranks on {first['nodes']} nodes, {first['dtype']}" + (
        f", {first['inter_gbits']:g} Gbit/s between nodes" if first.get("inter_gbits") else "")
    save(reports, title, args.out)
    print(f"plot.py: wrote {args.out}")


if __name__ == "__main__":
    main()
