/** What `npm run backends -- docker env` prints. */
const { DOCKER_HOST = "", BREAKWATER_IMAGE = "", BREAKWATER_OTHER_IMAGE = "" } = process.env;
if (DOCKER_HOST === "" || BREAKWATER_IMAGE === "" || BREAKWATER_OTHER_IMAGE === "") {
  throw new Error(
    "DOCKER_HOST, BREAKWATER_IMAGE and BREAKWATER_OTHER_IMAGE are not set; run `npm run conformance -- docker`",
  );
}

export const dockerHost: string = DOCKER_HOST;
/** Debian 12 with Python 3.11 and pytest. */
export const image: string = BREAKWATER_IMAGE;
/** Visibly another one: Debian 13 with Python 3.13. */
export const otherImage: string = BREAKWATER_OTHER_IMAGE;
