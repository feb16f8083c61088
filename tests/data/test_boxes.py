import numpy as np
import pytest
from PIL import Image

from twinlens.data.boxes import Box, boxes_of_samples, draw_regions, read_boxes
from twinlens.errors import DataError
from twinlens.models.preprocessing import Preprocessing

VOC = """<annotation>
  <filename>%s</filename>
  <object>
    <name>dog</name>
    <bndbox><xmin>3</xmin><ymin>2</ymin><xmax>6</xmax><ymax>4</ymax></bndbox>
    <part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>
  </object>
  <object><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox><name>cat</name></object>
</annotation>
"""


def box(image="1", edges=(0.0, 0.0, 1.0, 1.0)):
    return Box(image=image, edges=edges, label=None, origin="line 1")


def written(tmp_path, text, name="boxes.csv"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_a_table_of_boxes(tmp_path):
    text = "id,xmin,ymin,xmax,ymax,label\ndog/1.png,0,1.5,4,5,dog\ndog/2.png,1,1,2,2,\n"
    first, second = read_boxes(written(tmp_path, text))
    assert (first.image, first.edges, first.label) == ("dog/1.png", (0.0, 1.5, 4.0, 5.0), "dog")
    assert (second.image, second.label) == ("dog/2.png", None)
    assert second.origin.endswith("boxes.csv', line 3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,xmin,ymin,xmax\n1,0,0,1\n", "the column ymax is missing"),
        ("xmin,ymin,xmax,ymax\n0,0,1,1\n", "line 2: a box needs the name of its image"),
        ("image,xmin,ymin,xmax,ymax\n1,0,0,1,1\n1,4,0,3,1\n", "line 3: a box needs numbers xmin < xmax"),
        ("image,xmin,ymin,xmax,ymax\n1,0,x,1,1\n", "line 2: a box needs numbers"),
        ("image,xmin,ymin,xmax,ymax\n1,0,0,inf,1\n", "line 2: a box needs numbers"),
        ("image,xmin,ymin,xmax,ymax\n1,0,0,1\n", "must have 5 columns in each line; line 2 has not"),
        ("image,xmin,ymin,xmax,ymax\n", "holds none"),
    ],
)
def test_tables_that_are_refused_by_their_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as error:
        read_boxes(written(tmp_path, text))
    assert "boxes.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_voc_counts_pixels_from_one_and_parts_of_objects_are_no_objects(tmp_path):
    (tmp_path / "dogs").mkdir()
    written(tmp_path / "dogs", VOC, "1.xml")
    written(tmp_path, "no annotation", "notes.txt")
    first, second = read_boxes(str(tmp_path))
    assert (first.image, first.edges, first.label) == ("dogs/1", (2.0, 1.0, 6.0, 4.0), "dog")
    assert (second.edges, second.label) == ((0.0, 0.0, 2.0, 2.0), "cat")
    assert first.origin.endswith("1.xml', object 1")
    assert second.origin.endswith("1.xml', object 2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE a [<!ENTITY b "bbbb">]><annotation>&b;</annotation>', "it declares a document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "it declares a document type"),
        ("<annotation><object></annotation>", "mismatched tag: line 1"),
        ("<annotation><object><bndbox><xmin>1</xmin></bndbox></object></annotation>", "object 1: a box needs numbers"),
        ("<annotation>" + " " * 2**20 + "</annotation>", "more than 1048576 bytes"),
        ("", "no element found"),
    ],
)
def test_xml_that_is_refused_by_its_file(tmp_path, text, message):
    written(tmp_path, text, "bad.xml")
    with pytest.raises(DataError, match=message) as error:
        read_boxes(str(tmp_path))
    assert "bad.xml" in str(error.value)


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"must be a .csv file, or a folder of Pascal VOC XML files or of masks"):
        read_boxes(written(tmp_path, "", "boxes.txt"))


IDS = ["cat/1.png", "dog/1.png", "dog/2.png", "dog/b/2.png"]


@pytest.mark.parametrize(
    ("image", "place"),
    [("dog/1.png", 1), ("dog/1", 1), ("voc/dog/1", 1), ("2.png", None), ("dog/2", 2), ("b/2", 3), ("dog/b/2.png", 3)],
)
def test_the_sample_of_a_box(image, place):
    if place is None:
        with pytest.raises(DataError, match=r"'2.png' may be 'dog/2.png' or 'dog/b/2.png'"):
            boxes_of_samples([box(image)], IDS)
    else:
        assert list(boxes_of_samples([box(image)], IDS)) == [place]


def test_boxes_of_other_images_are_left_out_but_not_all_of_them():
    assert boxes_of_samples([box("cow/1"), box("cat/1")], IDS) == {0: [box("cat/1")]}
    with pytest.raises(DataError, match=r"such as 'cat/1.png'; none of 1 does, the first is 'cow/1' \(line 1\)"):
        boxes_of_samples([box("cow/1")], IDS)


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("size", [(40, 60), (64, 32), (33, 47)])
def test_boxes_go_where_their_pixels_go(size, squash):
    """A white rectangle on black, through the whole preprocessing, is where the box is said to be."""
    preprocessing = Preprocessing(resize=24, crop=16, squash=squash, interpolation="bilinear")
    left, top, right, bottom = size[0] // 3, size[1] // 3, size[0] // 2 + 3, size[1] // 2 + 5
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[top:bottom, left:right] = 255
    seen = preprocessing(Image.fromarray(pixels))[0] > 0.5
    [region] = draw_regions({0: [box(edges=(left, top, right, bottom))]}, [size], preprocessing, (16, 16))
    assert seen.any()
    assert int((region != seen).sum()) <= 2  # a pixel whose centre is at an edge may be grey
    assert int(region.sum()) < 16 * 16


@pytest.mark.parametrize("size", [(40, 60), (64, 32)])
@pytest.mark.parametrize("kind", ["L", "1", "RGB", "P"])
def test_masks_go_where_their_pixels_go(tmp_path, size, kind):
    """A disc off the centre, through the whole preprocessing as a picture and as a mask."""
    y, x = np.ogrid[: size[1], : size[0]]
    inside = (x - size[0] / 2 - 2) ** 2 + (y - size[1] / 2 + 3) ** 2 < (min(size) / 4) ** 2
    values = np.where(inside, 1 if kind == "P" else 255, 0).astype(np.uint8)
    if kind == "P":
        values[:2] = 255  # a border that belongs to no class
    mask = Image.fromarray(values)
    if kind == "P":
        mask.putpalette([k for k in range(256) for _ in range(3)])
    (tmp_path / "dog").mkdir()
    (mask if kind in "LP" else mask.convert(kind)).save(tmp_path / "dog" / "1.png")
    (tmp_path / "notes.txt").write_text("made by hand")
    boxes = boxes_of_samples(read_boxes(str(tmp_path)), IDS)
    assert list(boxes) == [1]
    preprocessing = Preprocessing(resize=24, crop=16, interpolation="bilinear")
    seen = preprocessing(Image.fromarray(np.where(inside, 255, 0).astype(np.uint8)).convert("RGB"))[0] > 0.5
    region = draw_regions(boxes, [size] * len(IDS), preprocessing, (16, 16))
    assert region.flatten(1).any(dim=1).tolist() == [False, True, False, False]
    assert int((region[1] != seen).sum()) <= 6  # at the edge
    assert 50 < int(region[1].sum()) < 200


def test_masks_of_another_size_are_refused_and_images_next_to_xml_are_no_masks(tmp_path):
    Image.new("L", (8, 6), 255).save(tmp_path / "1.png")
    [mask] = read_boxes(str(tmp_path))
    with pytest.raises(
        DataError, match=r"1.png': a mask must be as large as its image of 10 × 10 pixels; it has 8 × 6"
    ):
        draw_regions({0: [mask]}, [(10, 10)], Preprocessing(), (10, 10))
    written(tmp_path, VOC, "1.xml")
    assert [one.mask for one in read_boxes(str(tmp_path))] == [None, None]


def test_samples_without_a_box_and_boxes_that_are_cut_off_have_no_region():
    preprocessing = Preprocessing(crop=4)
    regions = draw_regions({1: [box(edges=(0, 0, 2, 2))]}, [(10, 10)] * 2, preprocessing, (4, 4))
    assert regions.flatten(1).any(dim=1).tolist() == [False, False]


def test_a_box_that_is_not_inside_of_its_image_is_refused():
    with pytest.raises(DataError, match="line 1: the box 0, 0 to 40, 4 is not inside of its image of 10 × 10 pixels"):
        draw_regions({0: [box(edges=(0, 0, 40, 4))]}, [(10, 10)], Preprocessing(crop=4), (4, 4))
