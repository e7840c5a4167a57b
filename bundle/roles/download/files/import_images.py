"""Import image archives that containerd lacks: import_images.py DIRECTORY [NAME TO LEAVE OUT...]"""

import json
import pathlib
import subprocess
import sys
import tarfile

CTR = ["ctr", "--namespace", "k8s.io", "images"]
NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def references(archive):
    """The image names that an OCI or Docker archive carries."""
    with tarfile.open(archive) as tar:
        members = set(tar.getnames())
        if "manifest.json" in members:
            manifest = json.load(tar.extractfile("manifest.json"))
            return {tag for image in manifest for tag in image.get("RepoTags") or []}
        index = json.load(tar.extractfile("index.json"))
    annotations = [manifest.get("annotations", {}) for manifest in index["manifests"]]
    return {next(found[name] for name in NAMES if name in found) for found in annotations}


def main():
    directory, left_out = pathlib.Path(sys.argv[1]), sys.argv[2:]
    listed = subprocess.run([*CTR, "list", "--quiet"], check=True, capture_output=True, text=True)
    present = set(listed.stdout.split())
    for archive in sorted(directory.glob("*.tar")):
        if any(name in archive.name for name in left_out):
            continue
        if references(archive) <= present:
            continue
        subprocess.run([*CTR, "import", str(archive)], check=True, stdout=subprocess.DEVNULL)
        print(f"imported {archive.name}")


main()
