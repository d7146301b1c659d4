/** What `npm run backends -- docker env` prints. */
const { DOCKER_HOST = "", BREAKWATER_IMAGE = "" } = process.env;
if (DOCKER_HOST === "" || BREAKWATER_IMAGE === "") {
  throw new Error("DOCKER_HOST and BREAKWATER_IMAGE are not set; run `npm run conformance -- docker`");
}

export const dockerHost: string = DOCKER_HOST;
/** Debian 12 with Python 3.11 and pytest. */
export const image: string = BREAKWATER_IMAGE;
