# SPDX-License-Identifier: Apache-2.0
"""What the chart puts into a meta's pod, seen in the whole StatefulSet of chart metasim."""

import subprocess

import helm
import pytest

RUN = "/run/metafence/metafence-run"
STATE = "/run/metafence/state"


def _environment(container: dict) -> dict[str, str]:
    """As the kubelet would make it for pod meta-0."""
    paths = {"metadata.name": "meta-0", "metadata.uid": "0a1b2c3d-0000-4000-8000-000000000000"}
    paths |= {"metadata.namespace": "ns", "status.podIP": "10.79.1.2"}
    found: dict[str, str] = {}
    for entry in container["env"]:
        if "value" in entry:
            value = entry["value"]
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
        elif "fieldRef" in entry["valueFrom"]:
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            value = "" if path.startswith("metadata.annotations[") else paths[path]
        else:
            value = "a-secret"
        assert entry["name"] not in found, f"{entry['name']} is there twice"
        found[entry["name"]] = value
    return found


# --- pod security `restricted` -------------------------------------------------------------------


def _effective(pod: dict, container: dict) -> dict:
    of_pod = {k: v for k, v in pod.get("securityContext", {}).items()}
    return of_pod | container.get("securityContext", {})


@pytest.mark.parametrize("values", [(), ("metafence.config.fence.method=pidfd",), ("guarded=false",)])
def test_every_container_satisfies_restricted(values):
    pod = helm.pod_spec(helm.metasim(*values))
    for container in pod.get("initContainers", []) + pod["containers"]:
        context = _effective(pod, container)
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == 65532
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not context.get("privileged")
        assert all("hostPort" not in port for port in container["ports"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    allowed = {"emptyDir", "configMap", "persistentVolumeClaim", "projected"}
    assert all(allowed & volume.keys() for volume in pod["volumes"])


# --- the sidecar ---------------------------------------------------------------------------------


def test_sidecar_is_native_and_starts_first(shim):
    sidecar = helm.sidecar(shim)
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["args"] == ["agent", "--config", "/etc/metafence/agent.yaml"]
    assert "command" not in sidecar
    assert sidecar["ports"] == [{"name": "metafence", "containerPort": 9690}]


def test_sidecar_has_memory_bounded_and_cpu_not(shim):
    resources = helm.sidecar(shim)["resources"]
    assert resources["limits"] == {"memory": resources["requests"]["memory"]}
    assert "cpu" in resources["requests"]


def test_probes_of_the_sidecar(shim):
    sidecar = helm.sidecar(shim)
    for kind, path in [("startup", "/startupz"), ("readiness", "/readyz"), ("liveness", "/livez")]:
        assert sidecar[f"{kind}Probe"]["httpGet"] == {"path": path, "port": 9690}
    readiness = sidecar["readinessProbe"]
    assert readiness["periodSeconds"] == 5
    assert readiness["failureThreshold"] == 6
    assert readiness["timeoutSeconds"] == 1


def test_another_port_reaches_probes_and_agent():
    objects = helm.metasim("metafence.config.http.port=9700", "metafence.config.fence.method=pidfd")
    assert helm.sidecar(objects)["ports"][0]["containerPort"] == 9700
    assert helm.sidecar(objects)["livenessProbe"]["httpGet"]["port"] == 9700
    assert helm.meta(objects)["livenessProbe"]["httpGet"]["port"] == 9700
    assert "port: 9700" in helm.agent_yaml(objects)


def test_readiness_that_loses_names_is_refused():
    said = helm.refusal(helm.METASIM, "metafence.probes.sidecar.readiness.failureThreshold=3")
    assert "periodSeconds 5 x failureThreshold 3 = 15 s" in said


def test_no_port_is_refused():
    assert "config.http.port" in helm.refusal(helm.METASIM, "metafence.config.http.port=0")


def test_id_is_needed_by_a_pod():
    assert "id: meta's advertise address" in helm.refusal(helm.METASIM, "metafence.id=")


def test_password_comes_from_the_secret_alone(shim):
    [entry] = [e for e in helm.sidecar(shim)["env"] if e["name"] == "PGPASSWORD"]
    assert entry["valueFrom"] == {"secretKeyRef": {"name": "meta-postgres", "key": "password"}}
    assert "password" not in helm.agent_yaml(shim).lower()
    without = helm.sidecar(helm.metasim("metafence.passwordSecret.name="))
    assert "PGPASSWORD" not in [e["name"] for e in without["env"]]


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ((), "metafence.test/metafence:e2e"),
        (("metafence.image.tag=",), "metafence.test/metafence:0.1.0"),
        ((f"metafence.image.digest=sha256:{'a' * 64}",), f"metafence.test/metafence@sha256:{'a' * 64}"),
    ],
)
def test_image(values, image):
    assert helm.sidecar(helm.metasim(*values))["image"] == image


@pytest.mark.parametrize("method", ["shim", "pidfd"])
@pytest.mark.parametrize(
    "more", [(), ("metafence.config.kubernetes.roleLabel=", "metafence.config.notify=false")]
)
def test_agent_accepts_its_configuration(tmp_path, method, more):
    objects = helm.metasim(f"metafence.config.fence.method={method}", *more)
    file = tmp_path / "agent.yaml"
    file.write_text(helm.agent_yaml(objects))
    program = helm.program("metafence", "agent")
    env = _environment(helm.sidecar(objects))
    for verb in ("validate", "show"):
        done = subprocess.run(
            [program, "config", verb, "--config", file], env=env, capture_output=True, text=True, timeout=20
        )
        assert done.returncode == 0, done.stderr
    assert "meta-0.meta:5690" in done.stdout
    assert "a-secret" not in done.stdout
    assert (RUN in done.stdout) == (method == "shim")


# --- volumes -------------------------------------------------------------------------------------


def test_both_containers_share_one_directory_in_memory(shim):
    volumes = {v["name"]: v for v in helm.pod_spec(shim)["volumes"]}
    assert volumes["metafence"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Mi"}
    assert volumes["metafence-config"]["configMap"]["name"] == "metafence-agent"
    shared = {"name": "metafence", "mountPath": "/run/metafence"}
    assert shared in helm.sidecar(shim)["volumeMounts"]
    assert shared in helm.meta(shim)["volumeMounts"]
    config = {"name": "metafence-config", "mountPath": "/etc/metafence", "readOnly": True}
    assert config in helm.sidecar(shim)["volumeMounts"]


def test_the_sidecar_has_a_token_of_its_own(shim):
    """Of the pod's account, read again by the agent when the kubelet has renewed it; meta has none of it."""
    volumes = {v["name"]: v for v in helm.pod_spec(shim)["volumes"]}
    sources = volumes["metafence-token"]["projected"]["sources"]
    assert sources[0] == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    mount = {"name": "metafence-token", "mountPath": place, "readOnly": True}
    assert mount in helm.sidecar(shim)["volumeMounts"]
    assert "metafence-token" not in [m["name"] for m in helm.meta(shim)["volumeMounts"]]


def test_what_a_pod_needs_to_start_is_in_no_file():
    """A configuration that can't be read must not keep meta from starting: where its copy of metafence-run
    goes, and where the sidecar's startup probe asks, are in the environment."""
    objects = helm.metasim("metafence.config.http.port=9700")
    env = _environment(helm.sidecar(objects))
    assert (env["METAFENCE_RUN"], env["METAFENCE_HTTP_PORT"]) == (RUN, "9700")
    assert "metafenceRun" not in helm.agent_yaml(objects)


def test_extra_environment_and_mounts_reach_the_sidecar():
    mount = {"name": "ca", "mountPath": "/etc/postgres-ca", "readOnly": True}
    objects = helm.metasim(
        json_values={
            "metafence.extraEnv": [{"name": "PGOPTIONS", "value": "-c x=y"}],
            "metafence.extraVolumeMounts": [mount],
        }
    )
    assert _environment(helm.sidecar(objects))["PGOPTIONS"] == "-c x=y"
    assert mount in helm.sidecar(objects)["volumeMounts"]


# --- meta, by the shim ---------------------------------------------------------------------------


def test_meta_is_wrapped_and_keeps_its_arguments(shim):
    command = helm.meta(shim)["command"]
    assert command[0] == RUN
    assert command[-2:] == ["--", "/usr/bin/metasim"]
    assert set(command[1:-2]) == {
        "--socket=/run/metafence/fence.sock",
        f"--state={STATE}",
        "--pod-uid=$(POD_UID)",
        "--host-id=$(POD_NAME).meta:5690",
        "--peer-uid=65532",
        "--ttl=10s",
        "--margin=500ms",
        "--kill-budget=500ms",
    }
    assert helm.meta(shim)["args"][0] == "meta-node"
    assert "shareProcessNamespace" not in helm.pod_spec(shim)
    assert {"POD_UID", "POD_NAME"} <= _environment(helm.meta(shim)).keys()


@pytest.mark.parametrize(
    ("values", "option"),
    [
        (("metafence.run.restart=container",), "--restart=container"),
        (("metafence.run.restart=in-place",), "--restart=in-place"),
        (("metafence.run.requireAgent=true",), "--require-agent"),
        (("metafence.run.maxKills=0",), "--max-kills=0"),
        (("metafence.config.election.ttl=30s",), "--ttl=30s"),
        (("metafence.config.meta.servicePort=5790",), "--service-port=5790"),
        (("metafence.config.fence.socket=/run/metafence/f",), "--socket=/run/metafence/f"),
    ],
)
def test_options_of_metafence_run(values, option):
    assert option in helm.meta(helm.metasim(*values))["command"]


def test_a_switch_that_is_off_is_not_said():
    command = helm.meta(helm.metasim("metafence.run.requireAgent=false"))["command"]
    assert not [word for word in command if "require" in word]


def test_probes_of_meta_ask_its_state_file(shim):
    meta = helm.meta(shim)
    for kind in ("startup", "readiness", "liveness"):
        assert meta[f"{kind}Probe"]["exec"]["command"] == [RUN, "probe", kind, "--state", STATE]
    # One probe that was late on a busy node is no reason to kill.
    assert meta["livenessProbe"]["failureThreshold"] >= 3
    assert meta["livenessProbe"]["terminationGracePeriodSeconds"] == 1


def test_probes_of_meta_have_timings_of_their_own():
    meta = helm.meta(helm.metasim("metafence.probes.meta.liveness.periodSeconds=2"))
    assert meta["livenessProbe"]["periodSeconds"] == 2
    assert meta["livenessProbe"]["failureThreshold"] == 3
    assert meta["livenessProbe"]["exec"]["command"][0] == RUN


# --- meta, by pidfd ------------------------------------------------------------------------------


def test_pidfd_wraps_nothing_and_shares_the_pid_namespace(pidfd):
    assert helm.meta(pidfd)["command"] == ["/usr/bin/metasim"]
    assert helm.pod_spec(pidfd)["shareProcessNamespace"] is True
    assert "method: pidfd" in helm.agent_yaml(pidfd)
    assert "METAFENCE_RUN" not in _environment(helm.sidecar(pidfd))


def test_pidfd_asks_the_agent_whether_meta_has_to_be_dead(pidfd):
    assert helm.meta(pidfd)["livenessProbe"] == {
        "httpGet": {"path": "/meta/livez", "port": 9690},
        "periodSeconds": 1,
        "timeoutSeconds": 1,
        "failureThreshold": 3,
        "terminationGracePeriodSeconds": 1,
    }
    assert helm.meta(pidfd)["readinessProbe"]["tcpSocket"] == {"port": 5690}


# --- without metafence ---------------------------------------------------------------------------


def test_control_run_has_nothing_of_metafence():
    objects = helm.metasim("guarded=false")
    assert helm.kinds(objects) == {"Secret", "Service", "StatefulSet"}
    assert "initContainers" not in helm.pod_spec(objects)
    assert helm.meta(objects)["command"] == ["/usr/bin/metasim"]
    assert helm.meta(objects)["livenessProbe"]["tcpSocket"] == {"port": "service"}
    assert "metafence" not in str(helm.pod_spec(objects)).replace("metafence.test/", "")


def test_both_runs_have_the_same_meta():
    guarded, control = helm.meta(helm.metasim()), helm.meta(helm.metasim("guarded=false"))
    assert guarded["args"] == control["args"]
    ours = {"POD_UID"}
    assert [e for e in guarded["env"] if e["name"] not in ours] == control["env"]


def test_metasim_and_agent_have_one_idea_of_the_election():
    objects = helm.metasim("metafence.config.election.ttl=30s", "metafence.config.postgres.port=5433")
    meta = helm.meta(objects)
    assert "--lease=30s" in meta["args"]
    env = _environment(meta)
    assert env["RW_SQL_ENDPOINT"] == "10.77.0.1:5433"
    assert env["RW_ADVERTISE_ADDR"] == _environment(helm.sidecar(objects))["METAFENCE_ID"]


def test_witness_files_can_outlive_their_pods():
    def volume(*values: str) -> dict:
        [found] = [v for v in helm.pod_spec(helm.metasim(*values))["volumes"] if v["name"] == "witness"]
        return found

    assert volume()["emptyDir"] == {}
    assert volume("witness.claim=files")["persistentVolumeClaim"] == {"claimName": "files"}
    assert "--witness=/witness/$(POD_NAME).$(RW_WITNESS_UID)" in helm.meta(helm.metasim())["args"]
