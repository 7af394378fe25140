"""What a plan means in the words of the catalog."""

from __future__ import annotations

import pytest

from corral.terraform.changes import of_plan
from tests.support.plans import Model, Side, plan

RUNNING = Side()
SMALL = Model(context=8192, mib=900, files=(("bb", 3 << 20), ("cc", 1 << 19)), revision="b" * 40)


def lines(before, after, **resources):
    return of_plan(plan(before, after, **resources)).lines()


def test_nothing_to_do_is_one_line():
    changes = of_plan(plan(RUNNING, RUNNING))

    assert changes.lines() == ["No changes."]
    assert changes.none
    assert changes.as_json() == {
        "changes": False,
        "catalog": [],
        "server": "stays",
        "server_restarts": False,
        "resources": {"add": 0, "change": 0, "destroy": 0},
        "outputs": [],
        "unsafe": [],
        "others": [],
        "objects": [],
    }


def test_an_unsafe_flag_is_in_every_plan_that_leaves_it_running():
    logging = RUNNING.with_model("a", Model(unsafe=(("log-file", "/my log", "We read it at night."),)))
    expected = [{"model": "a", "flag": "--log-file '/my log'", "why": "We read it at night."}]

    plans = [of_plan(plan(before, after)) for before in (None, RUNNING, logging) for after in (RUNNING, logging)]

    assert [one.as_json()["unsafe"] for one in plans] == [[], expected] * 3
    assert [one.none for one in plans] == [False, False, True, False, False, True]
    assert "~ model a: unsafe.log-file.value none → /my log, unsafe.log-file.why none → We read it at night." in (
        plans[3].lines()
    )
    assert of_plan(plan(logging, None)).unsafe == ()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (None, "shared", "! namespace shared refuses every new pod that is not restricted, also those of others"),
        ("shared", None, "! namespace shared no longer refuses pods that are not restricted"),
    ],
)
def test_what_a_plan_does_to_the_pods_of_others_is_in_its_words(before, after, words):
    labels = {name: {"metadata": [{"name": name}]} for name in (before, after) if name}
    change = {"before": labels.get(before), "after": labels.get(after), "actions": ["create" if after else "delete"]}
    document = plan(RUNNING, RUNNING)
    label = {"address": "kubernetes_labels.llama_cpp[0]", "mode": "managed", "type": "kubernetes_labels"}
    document["resource_changes"].append({**label, "name": "llama_cpp", "change": change})

    assert of_plan(document).lines() == [
        "Models, images, cards and clients stay as they are.",
        words,
        "server restarts: no",
    ]
    assert of_plan(document).as_json()["others"] == [words]


def test_the_first_apply_adds_everything():
    assert lines(None, RUNNING) == [
        "+ model a: fetch 2.5 GiB, seat 4193 MiB",
        "+ image door: caddy:2.11-alpine@sha256:333333333333",
        "+ image fetch: python:3.13-slim@sha256:222222222222",
        "+ image llama-swap: ghcr.io/org/llama-swap:v1@sha256:111111111111",
        "+ card t4: 10355 MiB left",
        "+ store",
        "+ deployment: llama_swap",
        "+ network policy: llama_swap",
        "server restarts: no (it starts for the first time)",
    ]


def test_a_new_model_has_its_fetch_and_its_seat():
    assert lines(RUNNING, RUNNING.with_model("b", SMALL).but(content="two")) == [
        "server restarts: yes",
        "+ model b: fetch 3.5 MiB, seat 900 MiB",
        "server restarts: yes",
    ]


def test_files_that_the_store_has_are_not_fetched_again():
    twin = Model(files=RUNNING.models["a"].files)

    assert "+ model b: nothing to fetch, seat 4193 MiB" in lines(RUNNING, RUNNING.with_model("b", twin))


def test_a_removed_model_leaves_its_files():
    both = RUNNING.with_model("b", SMALL)

    assert lines(both, both.without("b").but(content="two")) == [
        "server restarts: yes",
        "- model b: seat 900 MiB, its files stay in the store until: corral prune --context NAME",
        "~ download: runs again, and finds what it needs in the store",
        "server restarts: yes",
    ]


def test_the_command_that_removes_the_files_of_a_model_names_the_plans_context():
    document = plan(RUNNING.with_model("b", SMALL), RUNNING) | {"variables": {"kube_context": {"value": "home lab"}}}

    (words,) = [line for line in of_plan(document).lines() if line.startswith("- model b")]
    assert words.endswith(" until: corral prune --context 'home lab'")


def test_a_larger_context_takes_a_larger_seat():
    wider = RUNNING.with_model("a", Model(context=8192, mib=4711)).but(content="two")

    assert lines(RUNNING, wider) == [
        "server restarts: yes",
        "~ model a: context 3072 → 8192, seat 4193 → 4711 MiB",
        "server restarts: yes",
    ]


def test_a_new_revision_is_named_with_its_fetch():
    newer = RUNNING.with_model("a", Model(revision="abc123" + "0" * 34, files=(("dd", 2_684_354_560),)))

    assert lines(RUNNING, newer) == [
        "~ model a: new revision abc123000000, fetch 2.5 GiB",
        "server restarts: no",
    ]


def test_other_files_of_the_same_revision_are_listed():
    other = RUNNING.with_model("a", Model(files=(("dd", 1 << 30),)))

    assert "~ model a: other files, fetch 1.0 GiB" in lines(RUNNING, other)


def test_a_change_of_only_the_command_line_is_listed():
    assert lines(RUNNING, RUNNING.with_model("a", Model(args="-fa on")).but(content="two")) == [
        "server restarts: yes",
        "~ model a: command line nothing → -fa on",
        "server restarts: yes",
    ]


def test_a_longer_life_is_listed_by_its_own_key():
    assert "~ model a: ttl 600 → 0" in lines(RUNNING, RUNNING.with_model("a", Model(ttl=0)))


@pytest.mark.parametrize(
    ("field", "key"), [("image", "llama-swap"), ("door", "door"), ("fetch", "fetch"), ("engine", "llama-server")]
)
def test_an_image_is_listed_by_its_key_with_tag_and_digest(field, key):
    """Also fetch's, which the guard runs: the Job that is done keeps its own."""
    older, newer = (RUNNING.but(**{field: f"ghcr.io/org/one:v{one}@sha256:{one * 64}"}) for one in "12")

    assert lines(older, newer) == [
        "server restarts: yes",
        f"~ image {key}: ghcr.io/org/one:v1@sha256:111111111111 → ghcr.io/org/one:v2@sha256:222222222222",
        "server restarts: yes",
    ]


def test_an_engine_that_gets_an_image_of_its_own_leaves_llama_swaps_as_it_is():
    apart = RUNNING.but(engine="ghcr.io/org/llama.cpp:b2@sha256:" + "4" * 64)

    for sign, before, after in (("+", RUNNING, apart), ("-", apart, RUNNING)):
        images = [line for line in lines(before, after) if " image " in line]
        assert images == [f"{sign} image llama-server: ghcr.io/org/llama.cpp:b2@sha256:444444444444"]


def test_another_budget_on_the_card_is_listed():
    assert lines(RUNNING, RUNNING.but(tenants=(("desktop", 500), ("frigate", 200)))) == [
        "~ card t4: desktop 300 → 500 MiB, frigate none → 200 MiB, 9955 MiB left",
        "server restarts: no",
    ]


def test_a_card_without_models_is_added_and_removed():
    spare = RUNNING.but(spare_mib=8192)

    assert lines(RUNNING, spare) == ["+ card spare: 7680 MiB left", "server restarts: no"]
    assert lines(spare, RUNNING) == ["- card spare", "server restarts: no"]


def test_a_client_is_listed_with_what_its_key_permits():
    before = RUNNING.but(clients=(("desk", 2), ("photos", 1)))

    assert lines(before, RUNNING.but(clients=(("desk", 4), ("tv", 1)))) == [
        "~ client desk: requests 2 → 4",
        "- client photos",
        "+ client tv: models all, requests 1",
        "server restarts: no",
    ]


def test_another_store_has_nothing_in_it():
    moved = lines(RUNNING, RUNNING.but(claim="other"), job={"change": {"actions": ["delete", "create"]}})

    assert moved == [
        "~ model a: fetch 2.5 GiB",
        "~ store",
        "server restarts: no",
    ]


PROVISIONED = "kubernetes_persistent_volume_claim_v1.provisioned"


def provisioned(before, after):
    """The line about the store of a plan that changes its claim's size: a figure, or None for no claim."""
    sides = [
        {"spec": [{"storage_class_name": "longhorn", "resources": [{"requests": {"storage": size}}]}]} if size else None
        for size in (before, after)
    ]
    actions = {(False, True): "create", (True, False): "delete", (True, True): "update"}[bool(before), bool(after)]
    change = {"actions": [actions], "before": sides[0], "after": sides[1]}
    document = plan(RUNNING, RUNNING)
    claim = {"address": PROVISIONED, "mode": "managed", "type": PROVISIONED.partition(".")[0], "name": "provisioned"}
    document["resource_changes"].append(claim | {"change": change})
    (line,) = (one for one in of_plan(document).lines() if "store" in one)
    return line


def test_a_volume_that_a_storage_class_makes_goes_with_the_models_and_can_grow():
    assert provisioned(None, "200Gi") == "+ store"
    assert provisioned("200Gi", "300Gi") == "~ store: size 200Gi → 300Gi"
    assert provisioned("200Gi", None) == (
        "- store: the volume of StorageClass longhorn goes, and what lies in it, unless its reclaimPolicy is Retain"
    )


def test_a_download_that_failed_has_brought_nothing():
    again = {"change": {"actions": ["delete", "create"]}}

    assert of_plan(plan(RUNNING, RUNNING, failed=True, job=again)).lines()[0] == "~ model a: fetch 2.5 GiB"


def test_a_first_apply_that_failed_has_applied_no_lock():
    document = plan(RUNNING, RUNNING, failed=True, terraform_data={"change": {"actions": ["create"], "before": None}})

    assert of_plan(document).lines()[0] == "+ model a: fetch 2.5 GiB, seat 4193 MiB"


def test_a_lock_of_another_version_of_corral_counts_as_none():
    older = {"change": {"actions": ["update"], "before": {"input": {"version": 1, "models": {}}}}}
    document = plan(RUNNING, RUNNING, terraform_data=older)

    assert of_plan(document).lines()[0] == "+ model a: fetch 2.5 GiB, seat 4193 MiB"


def test_a_download_that_runs_again_for_nothing_new_is_listed():
    again = {"change": {"actions": ["delete", "create"]}}

    assert lines(RUNNING, RUNNING, job=again) == [
        "~ download: runs again, and finds what it needs in the store",
        "server restarts: no",
    ]


def test_what_the_catalog_has_no_word_for_is_still_a_change():
    assert lines(RUNNING, RUNNING, network_policy={"change": {"actions": ["update"]}}) == [
        "Models, images, cards and clients stay as they are.",
        "server restarts: no",
    ]


def test_a_destroy_takes_the_server_and_leaves_the_models():
    assert lines(RUNNING, None) == [
        "server restarts: no (it stops for good)",
        "- model a: seat 4193 MiB, its files stay in the store",
        "- image door: caddy:2.11-alpine@sha256:333333333333",
        "- image fetch: python:3.13-slim@sha256:222222222222",
        "- image llama-swap: ghcr.io/org/llama-swap:v1@sha256:111111111111",
        "- card t4",
        "- store: what lies in it stays",
        "- deployment: llama_swap",
        "- network policy: llama_swap",
        "server restarts: no (it stops for good)",
    ]


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"actions": ["no-op"]}, False),
        ({"actions": ["delete", "create"]}, True),
        ({"actions": ["update"], "after_unknown": {"spec": [{"template": [{"metadata": [{"labels": True}]}]}]}}, True),
        ({"actions": ["update"], "after_unknown": {"metadata": [{"resource_version": True}]}}, False),
    ],
    ids=["stays", "replaced", "not-known-yet", "only-its-metadata"],
)
def test_the_server_restarts_with_its_pod(change, restarts):
    changes = of_plan(plan(RUNNING, RUNNING, deployment={"change": change}))

    assert changes.as_json()["server_restarts"] is restarts


def test_more_replicas_restart_nothing():
    assert of_plan(plan(RUNNING, RUNNING.but(replicas="0"))).server == "stays"


def test_json_has_bytes_and_mib():
    wider = RUNNING.with_model("a", Model(context=8192, mib=4711)).with_model("b", SMALL)
    document = of_plan(plan(RUNNING, wider)).as_json()

    assert document["catalog"] == [
        {
            "kind": "model",
            "name": "a",
            "change": "changed",
            "details": ["context 3072 → 8192", "seat 4193 → 4711 MiB"],
            "fetch_bytes": 0,
            "seat_mib": {"before": 4193, "after": 4711},
        },
        {
            "kind": "model",
            "name": "b",
            "change": "added",
            "details": ["fetch 3.5 MiB", "seat 900 MiB"],
            "fetch_bytes": 3670016,
            "seat_mib": {"before": None, "after": 900},
        },
    ]
    assert document["outputs"] == []
    assert document["resources"] == {"add": 1, "change": 3, "destroy": 1}


def block(**content):
    """Terraform's form of a block."""
    return [content]


def moved(kind, name, before, after):
    """The change of one object of Kubernetes; a side is its spec."""
    sides = {
        side: {"metadata": block(name=name), "spec": block(**spec)} if spec is not None else None
        for side, spec in (("before", before), ("after", after))
    }
    actions = ["create"] if before is None else ["delete"] if after is None else ["update"]
    found = {"address": f"kubernetes_{kind}_v1.x", "mode": "managed", "type": f"kubernetes_{kind}_v1", "name": "x"}
    return found | {"change": {**sides, "actions": actions, "after_unknown": {}}}


def on_node(node, runtime_class="nvidia"):
    term = block(match_expressions=block(key="kubernetes.io/hostname", operator="In", values=[node]))
    required = block(node_selector_term=term)
    affinity = block(node_affinity=block(required_during_scheduling_ignored_during_execution=required))
    return {"template": block(spec=block(affinity=affinity, runtime_class_name=runtime_class))}


def admitting(*namespaces):
    selectors = [{"match_labels": {"kubernetes.io/metadata.name": name}} for name in namespaces]
    return {"ingress": block(**{"from": [{"namespace_selector": [one]} for one in selectors]})}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            moved("deployment", "llama-swap", on_node("a"), on_node("b", None)),
            "~ deployment llama-swap: node a → b, runtime_class_name nvidia → none",
        ),
        (moved("deployment", "llama-swap", None, on_node("a")), "+ deployment: llama-swap (node a)"),
        (
            moved("network_policy", "llama-swap", admitting("apps"), admitting("apps", "litellm")),
            "~ network policy llama-swap: admits namespaces apps → apps, litellm",
        ),
        (moved("network_policy", "default-deny", {}, None), "- network policy: default-deny"),
        (moved("namespace", "llm", None, {}), "+ namespace: llm"),
        (
            moved("service", "s", {"port": [{"port": at} for at in range(1, 40)]}, {"port": []}),
            f"~ service s: port.port {', '.join(map(str, range(1, 40)))[:60]}… → none",
        ),
        (
            moved("service", "s", {}, {f"p{at}": at for at in range(6)}),
            "~ service s: p0 none → 0, p1 none → 1, p2 none → 2, p3 none → 3, and 2 more",
        ),
        (
            moved("config_map", "door", {"data": {"a": "1"}}, {"data": {"a": "2"}}),
            "~ config map door: a changed",
        ),
    ],
)
def test_every_change_of_an_object_is_in_the_words_of_a_plan(change, words):
    document = plan(RUNNING, RUNNING)
    document["resource_changes"].append(change)

    assert words in of_plan(document).lines()
    assert words in of_plan(document).as_json()["objects"]


def test_the_stores_exporter_is_not_taken_for_the_server():
    exporter = moved("deployment", "store-exporter", on_node("a"), on_node("b"))
    document = plan(RUNNING, RUNNING)
    document["resource_changes"].insert(0, exporter)

    assert of_plan(document).server == "stays"
    assert of_plan(document).lines()[1:] == ["~ deployment store-exporter: node a → b", "server restarts: no"]


def of_content(name, before, after, module="guard"):
    """A ConfigMap's content that changes: one instance is made, and the other one removed."""
    found = []
    for mark, side, content in (("1", "before", before), ("2", "after", after)):
        if content is None:
            continue
        one = {"metadata": block(name=f"{name}-{mark}"), "data": content, "binary_data": None, "immutable": True}
        change = {"before": None, "after": None, "after_unknown": {"id": True}} | {side: one}
        address = f'module.x.module.{module}.kubernetes_config_map_v1.by_content["{mark}"]'
        kind = {"mode": "managed", "type": "kubernetes_config_map_v1", "name": "by_content"}
        found.append({"address": address} | kind | {"change": change | {"actions": [ACTION[side]]}})
    return found


ACTION = {"before": "delete", "after": "create"}


def test_a_changed_configuration_without_a_change_of_the_catalog_is_one_sentence():
    document = plan(RUNNING, RUNNING)
    document["resource_changes"] += of_content(
        "llama-swap-guard", {"a.py": "1", "b.py": "", "c.py": "1"}, {"a.py": "2", "c.py": "1"}
    )
    both = plan(RUNNING, RUNNING.with_model("b", SMALL))
    both["resource_changes"] += document["resource_changes"][-2:]

    assert of_plan(document).lines() == [
        "Models, images, cards and clients stay as they are.",
        "~ config map llama-swap-guard-2: a.py changed",
        "server restarts: no",
    ]
    assert not any("config map" in line for line in of_plan(both).lines())


def test_each_changed_configuration_is_paired_with_the_one_before_it():
    document = plan(RUNNING, RUNNING)
    document["resource_changes"] += [
        *of_content("llama-swap-door", {"guard.json": "1"}, {"guard.json": "2"}, "door"),
        *of_content("card-exporter-config", {"config.json": "1"}, {"config.json": "2", "new": "3"}, "config"),
    ]

    assert of_plan(document).as_json()["objects"] == [
        "~ config map llama-swap-door-2: guard.json changed",
        "~ config map card-exporter-config-2: config.json changed, new added",
    ]


def test_a_configuration_that_was_deleted_by_hand_is_made():
    document = plan(RUNNING, RUNNING)
    document["resource_changes"] += of_content("llama-swap-door", None, {"guard.json": "2"})

    assert of_plan(document).as_json()["objects"] == ["+ config map: llama-swap-door-2"]


def test_the_name_that_a_pod_mounts_has_no_words_of_its_own():
    def mounting(name):
        return {"template": block(spec=block(volume=block(config_map=block(name=name))))}

    document = plan(RUNNING, RUNNING)
    document["resource_changes"].append(moved("deployment", "llama-swap", mounting("c-1"), mounting("c-2")))

    assert of_plan(document).as_json()["objects"] == []
