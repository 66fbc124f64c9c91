import json
from harness import boot_ns, hold
from jobs import *
from test_rw27111 import guarded, wait_refused
def test_adhoc(cluster):
    jobs, leader = guarded(cluster)
    p = make_pending(jobs, leader)
    at = boot_ns()
    recovered = jobs.recover(leader)
    wait_refused(jobs, at)
    for _ in range(8):
        hold(0.5)
        print(json.dumps(leader.status()["recovery"]))
        print(since(p.node.witness, "reset_begin", at))
    print(jobs.cluster.postgres.sql("select * from metafence.death"))
    print(jobs.cluster.postgres.sql("select * from metafence.gate"))
    print(jobs.cluster.postgres.sql("select * from metafence.tag"))
    p.busy.release()
    assert 0
