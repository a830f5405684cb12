"""Folders of images in, folders of images out."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from unfade import InvalidData, InvalidFile, Recoverer
from unfade.app import uploads
from unfade.cli import app as cli
from unfade.io.image_files import Unmeasured, read_frame, write_frame
from unfade.io.images import evenly, open_frames, read_data
from unfade.streaming.images import recover_frames


def folder_of(path, dtype, ending, channels=()):
    """Thirty small images of a slope, each with a hole."""
    rng = np.random.default_rng(0)
    path.mkdir()
    for number in range(30):
        slope = 100 + 5 * np.arange(6)[:, None] + 3 * np.arange(8) + 20 * rng.random()
        frame = np.broadcast_to(slope[..., None], (6, 8, *channels)) if channels else slope
        frame = np.array(frame)
        top, left = rng.integers(0, 4, 2)
        frame[top : top + 2, left : left + 3] = np.nan if np.dtype(dtype).kind == "f" else 0
        write_frame(frame.astype(dtype), path / f"frame-{number:02d}{ending}")
    return path


KINDS = [("uint16", ".png", ()), ("uint8", ".png", (3,)), ("uint16", ".tif", ()), ("float32", ".tiff", ()),
         ("float64", ".npy", ()), ("float32", ".npy", (2,))]  # fmt: skip


@pytest.mark.parametrize(("dtype", "ending", "channels"), KINDS, ids=str)
def test_measured_pixels_come_back_and_holes_are_filled(tmp_path, dtype, ending, channels):
    frames = open_frames(folder_of(tmp_path / "in", dtype, ending, channels))
    rec = Recoverer(max_steps=20, random_state=0, verbose=0).fit(frames.read(evenly(len(frames), 100)))
    recover_frames(rec.model_, frames, tmp_path / "out", tmp_path / "std", tmp_path / "draws", draws=3, at_once=5)
    names = [path.name for path in frames.files]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    assert len(list((tmp_path / "draws").iterdir())) == 3
    for number, name in enumerate(names):
        before, after, std = (read_frame(tmp_path / part / name) for part in ("in", "out", "std"))
        hole = np.isnan(frames.read([number])[0])
        assert hole.any()
        assert after.dtype == before.dtype == std.dtype
        assert np.array_equal(after[~hole], before[~hole])
        assert np.isfinite(after).all()
        assert (after[hole] > 0).any()
        assert std[~hole].max() < 1e-4  # rounding


def test_draws_of_a_frame_do_not_hang_on_how_many_are_in_memory(tmp_path):
    frames = open_frames(folder_of(tmp_path / "in", "float32", ".npy"))
    rec = Recoverer(max_steps=20, random_state=0, verbose=0).fit(frames.read(evenly(len(frames), 25)))
    for at_once in (1, 30):
        recover_frames(
            rec.model_, frames, tmp_path / f"out{at_once}", None, tmp_path / f"draws{at_once}", 2, at_once=at_once
        )
    for name in [path.name for path in frames.files]:
        one, all_ = (np.load(tmp_path / f"draws{at_once}" / "draw-001" / name) for at_once in (1, 30))
        assert np.array_equal(one, all_)


@pytest.mark.parametrize("ending", [".npy", ".npz", ".zarr"])
def test_stacks_come_back_as_stacks(tmp_path, ending):
    folder = open_frames(folder_of(tmp_path / "in", "uint16", ".png"))
    stack = np.stack([folder.frame(number) for number in range(len(folder))])
    paths = [tmp_path / f"{name}{ending}" for name in ("stack", "out", "std", "draws")]
    if ending == ".zarr":
        zarr = pytest.importorskip("zarr")
        zarr.open_array(str(paths[0]), mode="w", shape=stack.shape, dtype=stack.dtype)[:] = stack
    elif ending == ".npy":
        np.save(paths[0], stack)
    else:
        np.savez(paths[0], depth=stack, number=np.arange(len(stack)))
    frames = open_frames(paths[0])
    assert np.array_equal(frames.read(range(30)), folder.read(range(30)), equal_nan=True)
    rec = Recoverer(max_steps=20, random_state=0, verbose=0).fit(frames.read(evenly(len(frames), 100)))
    recover_frames(rec.model_, frames, *paths[1:], draws=3, at_once=7)
    out, std, draws = (open_frames(path) if number < 2 else path for number, path in enumerate(paths[1:]))
    assert len(out) == len(std) == 30
    for number in range(30):
        seen = stack[number] > 0
        assert np.array_equal(out.frame(number)[seen], stack[number][seen])
        assert (out.frame(number)[~seen] > 0).all()
    drawn = zarr.open_array(str(draws)) if ending == ".zarr" else np.load(draws)
    drawn = drawn["data"] if ending == ".npz" else drawn
    assert drawn.shape == (3, *stack.shape)
    assert {path.name for path in tmp_path.iterdir()} == {"in", *(path.name for path in paths)}


def test_means_and_draws_go_to_different_places(tmp_path):
    frames = open_frames(folder_of(tmp_path / "in", "uint16", ".png"))
    with pytest.raises(InvalidData, match="different paths"):
        recover_frames(None, frames, tmp_path / "out", tmp_path / "out")
    with pytest.raises(InvalidFile, match="give a folder"):
        recover_frames(None, frames, tmp_path / "out.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_filled_pixel_is_not_called_missing():
    """Only where it would be: a colour with a zero in one channel is none."""

    def left(values, value, channels=0):
        given = np.zeros(np.shape(values), np.uint8)
        return Unmeasured(value, channels).left(np.array(values), given).tolist()

    assert left([0.2, 7.6, np.nan], 0.0) == [1, 8, 0]
    assert left([-3.0], 0.0) == [1]
    assert left([254.9], 255.0) == [254]
    assert left([0.2], None) == [0]
    assert left([[0.2, 0.0, 9.0], [0.2, 0.0, 0.0]], 0.0, 3) == [[0, 0, 9], [0, 0, 1]]


def colours(path, alpha=False):
    """Thirty blue pictures with a red disc; with alpha, each with a hole where it is 0 and a part where it is half."""
    path.mkdir()
    y, x = np.mgrid[:12, :14]
    for number in range(30):
        frame = np.zeros((12, 14, 3 + alpha), np.uint8)
        frame[..., 2] = 100 + 2 * number + 3 * x
        frame[np.hypot(x - 4 - number % 6, y - 6) < 3, :3] = 255, 0, 0
        if alpha:
            frame[..., 3] = np.where(y < 3, 128, 255)
            frame[5:7, number % 8 : number % 8 + 2, 3] = 0
        write_frame(frame, path / f"{number:02d}.png")
    return path


def recovered(folder, *options):
    result = CliRunner().invoke(cli.app, ["recover", str(folder), "-o", f"{folder}-out", "--max-steps", "3", *options])
    assert result.exit_code == 0, result.output
    given, found = ([read_frame(path) for path in sorted(place.iterdir())] for place in (folder, Path(f"{folder}-out")))
    return np.stack(given), np.stack(found), " ".join(result.output.split())


@pytest.mark.filterwarnings("ignore::unfade.errors.DataNotice")
def test_a_colour_with_zeros_in_it_is_measured(tmp_path):
    given, found, said = recovered(colours(tmp_path / "in"))
    assert np.array_equal(given, found)
    assert "0 of 5,040 pixels missing (0.0%): those where all 3 channels are 0" in said


@pytest.mark.filterwarnings("ignore::unfade.errors.DataNotice")
def test_a_pixel_is_missing_where_alpha_is_zero_and_alpha_comes_back(tmp_path):
    given, found, said = recovered(colours(tmp_path / "in", alpha=True))
    hole = given[..., 3] == 0
    assert np.array_equal(given[~hole], found[~hole])
    assert (found[hole][:, 3] == 255).all()
    assert f"{hole.sum()} of 5,040 pixels missing (2.4%): those where alpha is 0" in said


@pytest.mark.filterwarnings("ignore::unfade.errors.DataNotice")
def test_zero_is_a_value_where_the_user_says_so(tmp_path):
    folder = folder_of(tmp_path / "in", "uint8", ".png")
    given, found, said = recovered(folder, "--missing-value", "none")
    assert (given == 0).any()
    assert np.array_equal(given, found)
    assert "no value means missing" in said
    with pytest.raises(InvalidData, match="a number, nan or none"):
        open_frames(folder, "zero")
    with pytest.raises(InvalidData, match="cannot be NaN"):
        open_frames(folder, "nan")


def test_a_stack_is_read_by_one_rule_everywhere(tmp_path):
    """`unfade diagnose` and the page take the same pixels for missing as `unfade recover`."""
    stack = np.random.default_rng(0).integers(0, 2, (4, 5, 6, 2)).astype(np.uint8)
    np.save(tmp_path / "stack.npy", stack)
    table, rule = read_data(tmp_path / "stack.npy")
    assert np.array_equal(np.isnan(table), (stack == 0).all(-1, keepdims=True).repeat(2, -1))
    assert np.array_equal(table, open_frames(tmp_path / "stack.npy").read(range(4)), equal_nan=True)
    assert "all 2 channels are 0" in str(rule)
    loaded = uploads.load("stack.npy", (tmp_path / "stack.npy").read_bytes(), tmp_path)
    assert np.array_equal(loaded.table, table, equal_nan=True)


def png_of(path, bits, kind, channels):
    """A PNG of 2 x 2 pixels, all 0; kind: as in its header."""

    def part(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 2, 2, bits, kind, 0, 0, 0)
    rows = (b"\0" + bytes(-(-2 * channels * bits // 8))) * 2
    parts = part(b"IHDR", header), part(b"IDAT", zlib.compress(rows)), part(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return path


def test_an_image_that_would_not_come_back_as_it_is_is_refused(tmp_path):
    for bits, kind, channels in ((16, 2, 3), (16, 6, 4), (16, 4, 2), (4, 0, 1)):
        with pytest.raises(InvalidFile, match=rf"has {bits} bits per channel, of which 8 would be kept. Save it as .npy"):
            read_frame(png_of(tmp_path / "bits.png", bits, kind, channels))
    assert read_frame(png_of(tmp_path / "grey.png", 16, 0, 1)).dtype == np.uint16
    grey = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    grey.save(tmp_path / "pages.tif", save_all=True, append_images=[grey, grey])
    with pytest.raises(InvalidFile, match=r"has 3 pages.*one \.npy stack"):
        read_frame(tmp_path / "pages.tif")
    grey.convert("P").save(tmp_path / "palette.png")
    with pytest.raises(InvalidFile, match=r"has a palette.*Convert"):
        read_frame(tmp_path / "palette.png")
    grey.convert("CMYK").save(tmp_path / "print.tif")
    with pytest.raises(InvalidFile, match="colour mode CMYK"):
        read_frame(tmp_path / "print.tif")
    grey.save(tmp_path / "key.png", transparency=3)
    with pytest.raises(InvalidFile, match="stands for transparent"):
        read_frame(tmp_path / "key.png")


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "I;16", "F"])
@pytest.mark.parametrize("ending", [".png", ".tif"])
def test_an_image_that_is_read_and_written_is_the_same(tmp_path, mode, ending):
    if mode == "F" and ending == ".png":
        pytest.skip("PNG holds no floats")
    kind = {"I;16": np.uint16, "F": np.float32}.get(mode, np.uint8)
    channels = {"LA": (2,), "RGB": (3,), "RGBA": (4,)}.get(mode, ())
    frame = (np.random.default_rng(0).random((5, 7, *channels)) * 250).astype(kind)
    write_frame(frame, tmp_path / f"one{ending}")
    with Image.open(tmp_path / f"one{ending}") as image:
        assert image.mode == mode
    again = read_frame(tmp_path / f"one{ending}")
    assert again.dtype == kind
    assert np.array_equal(again, frame)


def test_a_stack_that_is_none_is_named(tmp_path):
    np.save(tmp_path / "flat.npy", np.zeros((4, 5)))
    with pytest.raises(InvalidFile, match="4 x 5 of float64"):
        open_frames(tmp_path / "flat.npy")
    np.savez(tmp_path / "two.npz", a=np.zeros((2, 3, 3)), b=np.zeros((2, 3, 3)))
    with pytest.raises(InvalidFile, match="arrays a, b"):
        open_frames(tmp_path / "two.npz")
    np.save(tmp_path / "stack.npy", np.zeros((4, 5, 6)))
    with pytest.raises(InvalidFile, match=r"write it to one of .npy"):
        open_frames(tmp_path / "stack.npy").check_output(tmp_path / "out.png")


def test_what_is_wrong_is_named(tmp_path):
    folder = folder_of(tmp_path / "in", "uint16", ".png")
    frames = open_frames(folder)
    write_frame(np.ones((4, 4), np.uint16), folder / "frame-03.png")
    with pytest.raises(InvalidFile, match=r"frame-03\.png is 4 x 4"):
        frames.read(range(30))
    (folder / "frame-03.png").write_bytes(b"not an image")
    with pytest.raises(InvalidFile, match=r"Cannot read .*frame-03"):
        frames.read(range(30))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidFile, match="found none"):
        open_frames(tmp_path / "empty")


def test_one_image_is_told_where_to_go_and_images_without_holes_are_told(tmp_path):
    folder = folder_of(tmp_path / "in", "uint16", ".png")
    for command in (["recover", folder / "frame-00.png", "-o", tmp_path / "out"], ["diagnose", folder / "frame-00.png"]):
        result = CliRunner().invoke(cli.app, [str(part) for part in command])
        assert result.exit_code == 3
        assert "frame-00.png is one image. Give the folder" in result.output
    command = ["recover", folder, "-o", tmp_path / "out", "--missing-value", "9999", "--max-steps", 5]
    result = CliRunner().invoke(cli.app, [str(part) for part in command])
    assert result.exit_code == 0, result.output
    assert "no pixel was missing" in result.output


def test_nothing_is_left_of_a_run_that_fails(tmp_path):
    folder = folder_of(tmp_path / "in", "uint16", ".png")
    frames = open_frames(folder)
    rec = Recoverer(max_steps=5, random_state=0, verbose=0).fit(frames.read(evenly(len(frames), 30)))
    (folder / "frame-29.png").write_bytes(b"not an image")
    with pytest.raises(InvalidFile):
        recover_frames(rec.model_, frames, tmp_path / "out", at_once=4)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_frame_with_nothing_measured_is_drawn_from_the_prior(tmp_path):
    folder = folder_of(tmp_path / "in", "uint16", ".png")
    Image.fromarray(np.zeros((6, 8), np.uint16)).save(folder / "frame-05.png")
    frames = open_frames(folder)
    rec = Recoverer(max_steps=20, random_state=0, verbose=0).fit(frames.read(evenly(len(frames), 30)))
    recover_frames(rec.model_, frames, tmp_path / "out")
    assert read_frame(tmp_path / "out" / "frame-05.png").min() > 0


def test_a_picture_of_too_many_pixels_is_refused(tmp_path, monkeypatch):
    folder = folder_of(tmp_path / "in", "uint16", ".png")
    monkeypatch.setattr("unfade.io.image_files.PIXELS", 10)
    with pytest.raises(InvalidFile, match="pixels"):
        open_frames(folder)


def test_the_command_line(tmp_path):
    folder_of(tmp_path / "in", "uint16", ".png")
    places = ["-o", tmp_path / "out", "--std-to", tmp_path / "std", "--draws-to", tmp_path / "draws", "--draws", 2]
    places += ["--gallery", tmp_path / "page.png", "--report", tmp_path / "page.html"]
    command = ["recover", tmp_path / "in", *places, "--max-steps", 20]
    result = CliRunner().invoke(cli.app, [str(part) for part in command])
    assert result.exit_code == 0, result.output
    assert "30 images" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out", "std", "draws", "page.png", "page.html"}
    again = CliRunner().invoke(cli.app, [str(part) for part in command])
    assert again.exit_code == 3
    assert "exists already" in again.output


def test_what_cannot_be_refined_is_refused_before_the_fit(tmp_path, monkeypatch):
    folder_of(tmp_path / "in", "uint16", ".png")
    monkeypatch.setattr("unfade.inference.fit.fit_ensembles", lambda *_: pytest.fail("it was fitted"))
    command = ["recover", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--network", "conv", "--n-candidates", "5"]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 3, result.output
    assert "n_candidates needs p(z)" in " ".join(result.output.split())


def test_options_of_images_are_refused_for_tables_and_the_reverse(tmp_path):
    folder_of(tmp_path / "in", "uint16", ".png")
    (tmp_path / "in.csv").write_text("a,b\n1.5,2\n,3\n")
    for arguments in (
        ["in.csv", "-o", "out.csv", "--gallery", "page.png"],
        ["in.csv", "-o", "out.csv", "--std-to", "std"],
        ["in.csv", "-o", "parts", "--missing-value", "0"],
    ):
        named = [a if a[0] == "-" or a == "0" else str(tmp_path / a) for a in arguments]
        result = CliRunner().invoke(cli.app, ["recover", *named])
        assert result.exit_code == 3, result.output
        assert "Leave" in result.output
