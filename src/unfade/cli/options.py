"""Options of the commands, each declared once: its type, its name and its help."""

from pathlib import Path
from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Noise = Annotated[
    str,
    typer.Option(
        help="none, learn (per column), learn-shared, learn-by-value, infer, 0.3, '5 %' or temp=0.5,hum=learn,ph=5%."
    ),
]
Method = Annotated[
    str, typer.Option(help="auto, masked, flow (slow without a GPU), tae, mvae, miwae or tae-paper (500,000 steps).")
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Kind of a column: zip=category or note=passthrough.")]
Bounds = Annotated[list[str] | None, typer.Option(help="Least and largest value of a column, age=0:120, or of all, 0:1.")]
DetectionLimits = Annotated[
    list[str] | None, typer.Option("--detection-limit", help="Detection limit of a column: 'lead<0.5'.")
]
Marks = Annotated[
    list[str] | None,
    typer.Option("--missing", help="Value that stands for missing ones: -99 (in all columns) or age=-99; may be repeated."),
]
Applicable = Annotated[
    list[str] | None,
    typer.Option(help="Condition under which a column has a value: 'age_moved=moved == 1'; else it stays empty."),
]
Derived = Annotated[
    list[str] | None, typer.Option(help="Column computed from others, in every draw: 'bmi=wgt / (hgt / 100) ** 2'.")
]
SumOf = Annotated[list[str] | None, typer.Option("--sum", help="Total and its parts: 'total=a+b+c'.")]
Order = Annotated[list[str] | None, typer.Option(help="Columns of which none is larger than the next: 'low<=mid<=high'.")]
Time = Annotated[str | None, typer.Option(help="Column of times: rows are steps of series, in any order.")]
Panel = Annotated[list[str] | None, typer.Option(help="Column that identifies series, with --time; may be repeated.")]
Where = Annotated[
    Path | None,
    typer.Option(help="Table of the same shape, 1 for missing cells that are filled, 0 for those that stay empty."),
]
Separator = Annotated[str | None, typer.Option(help="Separator of a text file: ';', tab, '|'; found where not given.")]
Decimal = Annotated[str | None, typer.Option(help="Decimal mark of a text file, . or ,; found where not given.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding of a text file: utf-8, cp1252, ...; found where not given.")]
Sheet = Annotated[str | None, typer.Option(help="Sheet of a workbook; the first where not given.")]
Imputer = Annotated[
    list[str] | None,
    typer.Option(help="What to score: unfade, iterative (scikit-learn's IterativeImputer) or columns; may be repeated."),
]
ScoreDraws = Annotated[int, typer.Option("--draws", min=2, help="Draws that each score is made of.")]
MaxRows = Annotated[int, typer.Option(min=10, help="Observed cells of a column that are drawn again, at most.")]
MaxColumns = Annotated[int, typer.Option(min=1, help="Columns that are scored, those with most missing cells.")]
Query = Annotated[str | None, typer.Option(help="SQL query whose result is read, if DATA is a database: postgresql://...")]
DrawsFormat = Annotated[
    str | None, typer.Option(help="Form of --draws-to: unfade (columns draw, row), mice (R), stata or spss.")
]
Fill = Annotated[
    str | None,
    typer.Option(help="What missing cells get: mean, median or draw (mean), rounded to a value that the column can hold."),
]
Scale = Annotated[str, typer.Option(help="auto, variance, interval, joint-variance, joint-interval or none.")]
Network = Annotated[str, typer.Option(help="auto, full, or for images conv (the paper's) or conv-large.")]
Members = Annotated[int | None, typer.Option(min=1, help="Models side by side; chosen by the size of the table.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same result.")]
MaxSteps = Annotated[int | None, typer.Option(help="Training steps; chosen by held-out cells where not given.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Time budget of the fit.")]
Model = Annotated[Path | None, typer.Option(help="Use this fitted model instead of fitting.")]
MissingValue = Annotated[
    str | None,
    typer.Option(help="What pixels hold that were not measured, in all channels: 0 (integers), nan (others), or none."),
]
InputData = Annotated[
    Path,
    typer.Argument(
        help="Table (.csv, .tsv, .txt, .xlsx, .sav, .dta, .parquet, .feather), array (.npy, .npz, .zarr), a folder of "
        "images, a database (postgresql://...), or - (standard input)."
    ),
]
OutputData = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        help="Where the recovered data (posterior mean) go; a folder: part by part; -: as CSV to standard output.",
    ),
]
NumberOfDraws = Annotated[
    int | None, typer.Option(help="Number of draws for --draws-to (20; 8 of images), or into a folder (none).")
]
DrawsTo = Annotated[
    Path | None,
    typer.Option(help="Long table of draws: columns draw, row, then the data's; of images where their draws go."),
]
StdTo = Annotated[Path | None, typer.Option(help="Where standard deviations go, if DATA are images.")]
Gallery = Annotated[
    Path | None, typer.Option(help="Picture (.png) of some images: given, mean, draws, standard deviation.")
]
Report = Annotated[Path | None, typer.Option(help="Page (.html) that says how far to trust the result, with pictures.")]
Save = Annotated[Path | None, typer.Option(help="Save the fitted model here.")]
Memory = Annotated[str, typer.Option(help="What data may take at a time, if -o is a folder.")]
CheckpointFolder = Annotated[
    Path | None, typer.Option(help="Folder in which training keeps what it has reached; empty again at the end.")
]
CheckpointEvery = Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from what a stopped run has left.")]
Candidates = Annotated[int | None, typer.Option(help="Proposals a draw is resampled from; 0: plain draws, faster.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be trained and how long it takes; write nothing.")
]

Experiment = Annotated[str, typer.Argument(help="The experiment; `list` names them all.")]
ExperimentFolder = Annotated[
    Path | None, typer.Option("-o", "--output", help="Folder for results and pictures; NAME-SCHEDULE where not given.")
]
Quick = Annotated[bool, typer.Option("--quick", help="The same as --schedule quick: minutes on two cores.")]
StepSchedule = Annotated[str, typer.Option(help="paper: to the letter; equal: as many samples seen; short; quick.")]
Repeats = Annotated[int | None, typer.Option(min=1, help="Masks or subsets; the paper's number where not given.")]
DataFolder = Annotated[Path | None, typer.Option(help="Folder with the data sets; fetched where they are not there.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
LearnNoise = Annotated[bool, typer.Option("--learn-noise", help="Every method learns the noise level.")]
Together = Annotated[int, typer.Option(min=1, help="Models trained side by side; more need more memory.")]
DataSets = Annotated[list[str] | None, typer.Option(help="Of table1: this data set; may be repeated.")]
Shares = Annotated[list[float] | None, typer.Option(help="Of table1: this share missing; may be repeated.")]
Ways = Annotated[list[str] | None, typer.Option(help="Of table1, supp-mnar: this row; may be repeated.")]
Floors = Annotated[list[float] | None, typer.Option(min=0.1, help="Of table1, supp-mnar: this floor; may be repeated.")]
InferNoise = Annotated[bool, typer.Option(help="Of table1: --way 'TAE, noise inferred' (row by row).")]
Masks = Annotated[list[int] | None, typer.Option(min=0, help="Of table1: this repeat, from 0; may be repeated.")]
PrintSettings = Annotated[bool, typer.Option("--dry-run", help="Print the settings and stop.")]
