"""Compares each resource of a manifest with the schema of its API: validate.py WHEEL MANIFEST."""

import json
import sys
import zipfile

import jsonschema
import yaml

SCHEMAS = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/"

wheel, manifest = sys.argv[1:]
archive = zipfile.ZipFile(wheel)
definitions = json.loads(archive.read(SCHEMAS + "_definitions.json"))["$defs"]


def schema_of(resource):
    group, _, version = resource["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": resource["kind"]}
    for name, definition in definitions.items():
        if kind in definition.get("x-kubernetes-group-version-kind", []):
            return {"$ref": "#/$defs/" + name, "$defs": definitions}
    sys.exit(f"no schema for {kind}")


with open(manifest) as file:
    resources = list(yaml.safe_load_all(file))
for resource in resources:
    errors = list(jsonschema.Draft202012Validator(schema_of(resource)).iter_errors(resource))
    for error in errors:
        print(f"{resource['kind']}: {error.json_path}: {error.message}")
    if errors:
        sys.exit(1)
print(f"{len(resources)} resources")
