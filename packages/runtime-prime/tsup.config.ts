import { packageBuild, type PackageBuild } from "../../tsup.base.ts";

const build: PackageBuild = packageBuild();
export default build;
