"""Takes as many connections as it can get and lets them stall: `python3 -c THIS JSON`, with ports, host, count and path. Says how many were answered, and holds them until its input ends."""
import itertools, json, resource, socket, ssl, sys
from concurrent.futures import ThreadPoolExecutor

it = json.loads(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
held = []


def stall(port):
    connection = socket.socket()
    connection.settimeout(60)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        if port == 3128:
            connection.sendall(("CONNECT %s:443 HTTP/1.1\r\n\r\n" % it["host"]).encode())
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(1)
                if not piece:
                    return False
                head += piece
        if port != 80:
            connection = context.wrap_socket(connection, server_hostname=it["host"])
        connection.sendall(("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (it["path"], it["host"])).encode())
        answered = b"HTTP/1.1 200" in connection.recv(it["read"])
        held.append(connection)
        return answered
    except OSError:
        return False


with ThreadPoolExecutor(16) as pool:
    ports = itertools.islice(itertools.cycle(it["ports"]), it["count"])
    print(json.dumps(sum(pool.map(stall, ports))), flush=True)
sys.stdin.read()
