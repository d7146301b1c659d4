"""Tries ways out of a box: `python3 -c THIS JSON`, a list of probes. Prints a JSON list of what came of each: "reached", or why not."""
import array, fcntl, json, os, socket, struct, sys
from concurrent.futures import ThreadPoolExecutor

SECONDS = 4
BIND_TO_DEVICE = getattr(socket, "SO_BINDTODEVICE", 25)


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def prepared(kind, probe):
    it = socket.socket(family(probe["host"]), kind)
    it.settimeout(SECONDS)
    if "device" in probe:
        it.setsockopt(socket.SOL_SOCKET, BIND_TO_DEVICE, probe["device"].encode() + b"\0")
    if probe.get("dontRoute"):
        it.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
    if "source" in probe:
        it.bind((probe["source"], 0))
    return it


def tcp(probe):
    it = prepared(socket.SOCK_STREAM, probe)
    it.connect((probe["host"], probe["port"]))
    it.sendall(probe["token"].encode())
    return "reached" if it.recv(100) else "closed"


def connect(probe):
    prepared(socket.SOCK_STREAM, probe).connect((probe["host"], probe["port"]))
    return "reached"


def udp(probe):
    it = prepared(socket.SOCK_DGRAM, probe)
    it.sendto(probe["token"].encode(), (probe["host"], probe["port"]))
    return "reached" if it.recvfrom(100)[0] else "empty"


def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ping(probe, kind):
    it = socket.socket(socket.AF_INET, kind, 1)
    it.settimeout(SECONDS)
    body = probe["token"].encode().ljust(16)[:16]
    head = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, 1)
    head = struct.pack("!BBHHH", 8, 0, checksum(head + body), os.getpid() & 0xFFFF, 1)
    it.sendto(head + body, (probe["host"], 0))
    while True:
        if body in it.recv(2000):
            return "reached"


def icmp(probe):
    return ping(probe, socket.SOCK_DGRAM)


def raw(probe):
    return ping(probe, socket.SOCK_RAW)


def frame(probe):
    """Asks for an Ethernet address, past the kernel's own stack."""
    it = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
    it.settimeout(SECONDS)
    it.bind((probe["device"], 0x0806))
    mac = it.getsockname()[4]
    own = fcntl.ioctl(it, 0x8915, struct.pack("256s", probe["device"].encode()))[20:24]
    it.send(b"\xff" * 6 + mac + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + own + b"\0" * 6 + socket.inet_aton(probe["host"]))
    while True:
        answer = it.recv(100)
        if answer[20:22] == b"\0\2" and answer[28:32] == socket.inet_aton(probe["host"]):
            return "reached"


def dns(probe):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in probe["name"].split("."))
    query = struct.pack("!6H", 4660, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)
    it = prepared(socket.SOCK_STREAM if probe.get("tcp") else socket.SOCK_DGRAM, probe)
    if probe.get("tcp"):
        it.connect((probe["host"], 53))
        it.sendall(struct.pack("!H", len(query)) + query)
        answer = it.recv(2000)[2:]
    else:
        it.sendto(query, (probe["host"], 53))
        answer = it.recvfrom(2000)[0]
    code, count = answer[3] & 15, struct.unpack("!H", answer[6:8])[0]
    return "reached" if code == 0 and count > 0 else "answered %d, %d records" % (code, count)


def resolve(probe):
    return "reached" if socket.getaddrinfo(probe["name"], 80) else "nothing"


def http(probe):
    it = prepared(socket.SOCK_STREAM, probe)
    it.connect((probe["host"], 80))
    it.sendall(("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % probe["host"]).encode())
    line = it.recv(100).split(b"\r\n")[0].decode()
    return "reached" if " 200" in line else line or "closed"


def configure(probe):
    """Gives every interface an address and a way to everywhere. Says how many of the changes were taken."""
    taken, why = 0, "no interface"
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    address = lambda ip: struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(ip))
    for device in os.listdir("/sys/class/net"):
        name = array.array("B", device.encode() + b"\0")
        for call, request in [
            (0x8916, struct.pack("16s", (device + ":1").encode()) + address("10.99.99.99")),  # SIOCSIFADDR
            (0x8914, struct.pack("16sh14x", device.encode(), 0x41)),  # SIOCSIFFLAGS
            (0x890B, struct.pack("8x") + address("0.0.0.0") + address("0.0.0.0") + address("0.0.0.0") + struct.pack("Hhqqhh4xQQQH6x", 1, 0, 0, 0, 0, 0, name.buffer_info()[0], 0, 0, 0)),  # SIOCADDRT
        ]:
            try:
                fcntl.ioctl(it, call, request)
                taken += 1
            except OSError as error:
                why = str(error)
    return "reached" if taken > 0 else why


def attempt(probe):
    try:
        return globals()[probe["kind"]](probe)
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)


with ThreadPoolExecutor(32) as pool:
    print(json.dumps(list(pool.map(attempt, json.loads(sys.argv[1])))))
