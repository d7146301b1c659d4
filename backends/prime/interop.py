"""A client that we did not write against the emulator: `interop.py container|vm [vm-only]`, with PRIME_* and BREAKWATER_IMAGE. A line for each check."""

import os
import sys
import tempfile
import time

from prime_sandboxes import APIClient, CreateSandboxRequest, SandboxClient

KIND = sys.argv[1]
# Newer clients know no other kind and have no field for it.
FIELDS = {} if "vm-only" in sys.argv else {"vm": KIND == "vm"}


def check(what, found, expected):
    if found != expected:
        sys.exit(f"FAILED {what}: expected {expected!r}, found {found!r}")
    print(f"ok {what}", flush=True)


def refused(work):
    try:
        work()
    except Exception as error:  # whatever the client calls it
        return type(error).__name__
    return "nothing"


label = f"interop-{os.getpid()}"
client = SandboxClient(APIClient())
box = client.create(
    CreateSandboxRequest(name="interop", docker_image=os.environ["BREAKWATER_IMAGE"], timeout_minutes=10, labels=[label], **FIELDS)
)
try:
    check("create", box.status, "PENDING")
    client.wait_for_creation(box.id)
    check("wait", client.get(box.id).status, "RUNNING")

    ran = client.execute_command(box.id, "echo out; echo err >&2; pwd; echo $A; exit 3", working_dir="/tmp", env={"A": "x y"})
    check("exec", (ran.stdout, ran.stderr, ran.exit_code), ("out\n/tmp\nx y\n", "err\n", 3))
    check("exec over its time", refused(lambda: client.execute_command(box.id, "sleep 30", timeout=2)), "CommandTimeoutError")

    folder = tempfile.mkdtemp()
    sent, received = os.path.join(folder, "sent"), os.path.join(folder, "received")
    with open(sent, "wb") as file:
        file.write(os.urandom(300_000))
    client.upload_file(box.id, "/tmp/file", sent)
    client.download_file(box.id, "/tmp/file", received)
    check("upload and download", open(received, "rb").read() == open(sent, "rb").read(), True)
    check("download of nothing", refused(lambda: client.download_file(box.id, "/nothing", received)), "APIError")

    job = client.start_background_job(box.id, "sleep 1; echo done; exit 4")
    for _ in range(120):
        status = client.get_background_job(box.id, job)
        if status.completed:
            break
        time.sleep(0.5)
    check("background job", (status.completed, status.exit_code, status.stdout), (True, 4, "done\n"))
    check("background job, waited for", client.run_background_job(box.id, "echo again", poll_interval=1).stdout, "again\n")

    if KIND == "vm":
        client.set_network(box.id, deny=["*"])
        check("egress policy", client.get(box.id).network_allowlist, [])
    check("list", [each.id for each in client.list(labels=[label]).sandboxes], [box.id])
finally:
    client.delete(box.id)
for _ in range(120):
    if client.get(box.id).status == "TERMINATED":
        break
    time.sleep(0.5)
check("delete", client.get(box.id).status, "TERMINATED")
check("delete again", refused(lambda: client.delete(box.id)), "APIError")
