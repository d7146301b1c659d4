import { describe, expect, it } from "vitest";
import { type Arrival, endToEnd, readConnect, readRequest } from "./http-request.ts";

const proxy: Arrival = { kind: "proxy" };
const direct: Arrival = { kind: "direct" };
const tunnel: Arrival = { kind: "tunnel", host: "example.com" };

const read = (arrival: Arrival, url: string, rawHeaders: readonly string[] = [], httpVersion = "1.1"): string => {
  const asked = readRequest({ method: "GET", url, httpVersion, rawHeaders }, arrival);
  return asked.outcome === "asked" ? `${asked.host} ${asked.port} ${asked.path}` : `${asked.status} ${asked.rule}`;
};
const host = (value: string): readonly string[] => ["Host", value];

describe("a request", () => {
  it.each([
    [proxy, "http://example.com/a?b", host("example.com"), "example.com 80 /a?b"],
    [proxy, "http://example.com", host("example.com"), "example.com 80 /"],
    [proxy, "http://example.com?a", host("example.com"), "example.com 80 /?a"],
    [proxy, "HTTP://EXAMPLE.com:80/", host("Example.com."), "example.com 80 /"],
    [proxy, "http://example.com/http://evil.example/", host("example.com"), "example.com 80 /http://evil.example/"],
    [proxy, "http://93.184.215.14/", host("93.184.215.14"), "93.184.215.14 80 /"],
    [proxy, "http://[2606:2800:0:0::15]/", host("[2606:2800::15]"), "[2606:2800::15] 80 /"],
    [proxy, "http://b\u00c3\u00bccher.example/", host("xn--bcher-kva.example"), "xn--bcher-kva.example 80 /"],
    [direct, "/a", host("example.com"), "example.com 80 /a"],
    [direct, "//evil.example/a", host("example.com"), "example.com 80 //evil.example/a"],
    [direct, "/a", host("EXAMPLE.com:80"), "example.com 80 /a"],
    [direct, "http://example.com/a", host("example.com"), "example.com 80 /a"],
    [tunnel, "/a", host("example.com"), "example.com 80 /a"],
  ])("%j %s %j: %s", (arrival, url, headers, expected) => {
    expect(read(arrival, url, headers)).toBe(expected);
  });

  const refused: readonly (readonly [Arrival, string, readonly string[], string, string])[] = [
    [proxy, "/a", host("example.com"), "403 form", "for a server"],
    [proxy, "*", host("example.com"), "403 form", "for the proxy itself"],
    [proxy, "example.com:443", host("example.com"), "403 form", "without a scheme"],
    [proxy, "https://example.com/", host("example.com"), "403 form", "TLS that the proxy were to do"],
    [proxy, "ftp://example.com/", host("example.com"), "403 form", "another scheme"],
    [proxy, "file:///etc/passwd", host("example.com"), "403 form", "another scheme without a host"],
    [proxy, "http://example.com:8080/", host("example.com:8080"), "403 port", "another port"],
    [proxy, "http://example.com:443/", host("example.com:443"), "403 port", "TLS's port in the clear"],
    [proxy, "http://example.com:22/", host("example.com:22"), "403 port", "SSH's port"],
    [proxy, "http://example.com:/", host("example.com"), "403 host-invalid", "an empty port"],
    [proxy, "http://example.com:99999/", host("example.com"), "403 host-invalid", "no port"],
    [proxy, "http:///a", host("example.com"), "400 no-host", "no host"],
    [proxy, "http://user@example.com/", host("example.com"), "403 host-invalid", "a user"],
    [proxy, "http://example.com@evil.example/", host("evil.example"), "403 host-invalid", "the host as a user"],
    [proxy, "http://evil.example\\@example.com/", host("example.com"), "403 host-invalid", "a backslash"],
    [proxy, "http://example.com%00.evil.example/", host("example.com"), "403 host-invalid", "an escaped NUL"],
    [proxy, "http://example.com\0/", host("example.com"), "403 host-invalid", "NUL"],
    [proxy, "http://example.com/", host("evil.example"), "403 host-mismatch", "another host in the field"],
    [proxy, "http://example.com/", host("example.com:8080"), "403 host-mismatch", "another port in the field"],
    [proxy, "http://example.com/", host(""), "403 host-mismatch", "an empty field"],
    [proxy, "http://example.com/#a", host("example.com"), "403 form", "a fragment"],
    [proxy, "http://example.com/", [], "400 no-host", "no host field"],
    [direct, "/a", [], "400 no-host", "no host"],
    [direct, "/a", host(""), "400 no-host", "an empty host"],
    [direct, "/a", host("example.com:8080"), "403 port", "another port"],
    [direct, "/a", host("user@example.com"), "403 host-invalid", "a user"],
    [direct, "/a", host("example.com, evil.example"), "403 host-invalid", "two hosts in a field"],
    [direct, "/a", ["Host", "example.com", "Host", "evil.example"], "400 no-host", "two fields"],
    [direct, "/a", ["Host", "example.com", "host", "example.com"], "400 no-host", "two equal fields"],
    [direct, "http://evil.example/", host("example.com"), "403 host-mismatch", "an absolute address of another host"],
    [direct, "https://example.com/", host("example.com"), "403 form", "an absolute address with TLS"],
    [tunnel, "/a", host("evil.example"), "403 host-mismatch", "another host than the tunnel's"],
    [tunnel, "http://evil.example/", host("evil.example"), "403 host-mismatch", "an absolute address of another host"],
  ];
  it.each(refused)("%j %s %j: %s, %s", (arrival, url, headers, expected) => {
    expect(read(arrival, url, headers)).toBe(expected);
  });

  it.each([
    [["Content-Length", "5"], "example.com 80 /"],
    [["Transfer-Encoding", "chunked"], "example.com 80 /"],
    [["Transfer-Encoding", "Chunked"], "example.com 80 /"],
    [["Content-Length", "5", "Transfer-Encoding", "chunked"], "400 framing"],
    [["Transfer-Encoding", "chunked", "Content-Length", "5"], "400 framing"],
    [["Content-Length", "5", "Content-Length", "5"], "400 framing"],
    [["Content-Length", "5", "Content-Length", "6"], "400 framing"],
    [["Content-Length", "5, 5"], "400 framing"],
    [["Content-Length", "+5"], "400 framing"],
    [["Content-Length", "0x5"], "400 framing"],
    [["Content-Length", "-1"], "400 framing"],
    [["Content-Length", ""], "400 framing"],
    [["Content-Length", "99999999999999999"], "400 framing"],
    [["Transfer-Encoding", "chunked", "Transfer-Encoding", "chunked"], "400 framing"],
    [["Transfer-Encoding", "gzip, chunked"], "400 framing"],
    [["Transfer-Encoding", "chunked, identity"], "400 framing"],
    [["Transfer-Encoding", "identity"], "400 framing"],
    [["Transfer-Encoding", "xchunked"], "400 framing"],
    [["Transfer-Encoding", " chunked\t"], "400 framing"],
    [["Transfer-Encoding", ""], "400 framing"],
  ])("with %j: %s", (headers, expected) => {
    expect(read(direct, "/", ["Host", "example.com", ...headers])).toBe(expected);
  });

  it("of HTTP/1.0 needs no Host field where its address is absolute", () => {
    expect(read(proxy, "http://example.com/", [], "1.0")).toBe("example.com 80 /");
    expect(read(direct, "/", [], "1.0")).toBe("400 no-host");
  });

  it("of HTTP/1.0 has no chunks", () => {
    expect(read(direct, "/", ["Host", "example.com"], "1.0")).toBe("example.com 80 /");
    expect(read(direct, "/", ["Host", "example.com", "Transfer-Encoding", "chunked"], "1.0")).toBe("400 framing");
  });
});

describe("CONNECT", () => {
  const connect = (url: string, rawHeaders: readonly string[] = []): string => {
    const asked = readConnect({ method: "CONNECT", url, httpVersion: "1.1", rawHeaders });
    return asked.outcome === "asked" ? `${asked.host} ${asked.port}` : `${asked.status} ${asked.rule}`;
  };
  it.each([
    ["example.com:443", [], "example.com 443"],
    ["EXAMPLE.com.:443", host("example.com:443"), "example.com 443"],
    ["example.com:443", host("example.com"), "example.com 443"],
    ["example.com:22", host("example.com:22"), "example.com 22"],
    ["[2606:2800::15]:443", [], "[2606:2800::15] 443"],
    ["example.com", [], "403 host-invalid"],
    ["2606:2800::15:443", [], "403 host-invalid"],
    ["user@example.com:443", [], "403 host-invalid"],
    ["http://example.com:443", [], "403 host-invalid"],
    ["example.com:443/", [], "403 host-invalid"],
    ["example.com:", [], "403 host-invalid"],
    ["example.com:443:443", [], "403 host-invalid"],
    ["example.com\0:443", [], "403 host-invalid"],
    ["example.com:99999", [], "403 host-invalid"],
    ["example.com:443", host("evil.example:443"), "403 host-mismatch"],
    ["example.com:443", host("example.com:80"), "403 host-mismatch"],
    ["example.com:443", ["Host", "example.com", "Host", "example.com"], "400 no-host"],
  ] as const)("%s %j: %s", (url, headers, expected) => {
    expect(connect(url, headers)).toBe(expected);
  });
});

describe("fields on the way", () => {
  it("that end at this hop do not go on", () => {
    const headers = [
      "A",
      "1",
      "Connection",
      "close, X-Secret",
      "x-secret",
      "2",
      "TE",
      "trailers",
      "Upgrade",
      "h2c",
      "A",
      "3",
    ];
    const proxyOnly = [
      "Proxy-Authorization",
      "Basic eA==",
      "Proxy-Connection",
      "keep-alive",
      "Keep-Alive",
      "timeout=5",
    ];
    expect(endToEnd([...headers, ...proxyOnly])).toEqual(["A", "1", "A", "3"]);
  });

  it("that make a message what it is are nobody's to take away", () => {
    const headers = ["Connection", "content-length, host", "Content-Length", "5", "Host", "example.com"];
    expect(endToEnd(headers)).toEqual(["Content-Length", "5", "Host", "example.com"]);
  });
});
