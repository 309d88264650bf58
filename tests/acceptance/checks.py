"""What programs that worked on a cluster wrote down, compared with what is there."""

from service import PREFIX

VOLUMES = {"w0": 1, "w1": 2, "w2": 3, "w3": 4, "r": 2, "l": 3}
# Whose files have 16 KiB on each server, round-robin.
STRIPED = ["w0", "w1"]
# A block of zeros, as they are shown.
NOTHING = ["\0" * 64]


def check_files(writer, entries, there):
    """What is wrong with the files of a writer, which are `there` by name."""
    files = {}
    for entry in entries:
        number = entry.get("file")
        if number is None:
            continue
        file = files.setdefault(number, {"names": {number}, "acked": 0, "begun": 0, "removed": False, "may_go": False})
        what = entry.get("begins") or entry.get("did") or entry.get("failed")
        if what == "write":
            file["blocks"] = entry["blocks"]
            file["begun"] = entry["version"]
            if "did" in entry:
                file["acked"] = entry["version"]
        elif what == "rename":
            if "did" in entry:
                file["names"] = {entry["to"]}
            else:
                file["names"] = {entry["name"], entry["to"]}
        else:
            file["may_go"] = True
            file["removed"] = "did" in entry
    wrong = []
    known = set()
    for number, file in files.items():
        known |= set() if file["removed"] else file["names"]
        present = [name for name in file["names"] if name in there]
        if file["removed"]:
            wrong += [f"{writer}: {name} was removed and is there" for name in present]
            continue
        if len(present) > 1 or not present and file["acked"] and not file["may_go"]:
            wrong.append(f"{writer}: of {file} there is {present}")
        for name in present:
            blocks = there[name]
            if file["acked"] and len(blocks) != file["blocks"] or len(blocks) > file["blocks"]:
                wrong.append(f"{writer}: {name} has {len(blocks)} blocks: {file}")
            for index, block in enumerate(blocks):
                if writer in STRIPED and not file["acked"] and block == NOTHING:
                    # Of a write that failed there may be parts on some servers, and nothing on others.
                    continue
                good = block[:2] == [writer, number] and len(block) == 4 and block[3] == str(index)
                if not good or int(block[2]) not in range(file["acked"], file["begun"] + 1):
                    wrong.append(f"{writer}: block {index} of {name} is {block}: {file}")
                    break
    return wrong + [f"{writer}: {name} is there and should not be" for name in there if name not in known]


def check_names(entries, found):
    """What is wrong with names in `r`, and of volumes."""
    must, may = set(), set()
    for entry in entries:
        what = entry.get("begins") or entry.get("did") or entry.get("failed")
        names = {entry[key] for key in ("name", "to") if key in entry}
        if what not in ("make", "rename", "remove"):
            continue
        if "did" not in entry:
            must -= names
            may |= names
            continue
        may -= names
        must -= names
        if what != "remove":
            must.add(entry.get("to", entry["name"]))
    there = {f"{PREFIX}/r/{name}" for name in found["r"]} | {
        f"{PREFIX}/{name}" for name in found[""] if name not in VOLUMES
    }
    wrong = [f"{name} was made and is gone" for name in must - there]
    return wrong + [f"{name} is there and should not be" for name in there - must - may]
