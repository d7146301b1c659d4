import { defineConfig, type ViteUserConfig } from "vitest/config";
import { testFolder } from "./scripts/lib/backends.ts";

// Packages import each other's sources: nothing has to be built to be tested.
const conditions = ["@breakwater/source", "module", "node", "development|production"];
const sources = { resolve: { conditions }, ssr: { resolve: { conditions } } };

/** Set by scripts/test.ts once the driver's backend is up. Without it no live test file is collected. */
const driver = process.env["CONFORMANCE"];
const liveFolders =
  driver === undefined
    ? []
    : [`${testFolder(driver)}/**`, "packages/!(runtime-*)/test/**", "acceptance", `acceptance/${driver}`];
const live = {
  // A case that needs longer says so itself. A failure is never retried: that would hide what we look for.
  testTimeout: 60_000,
  hookTimeout: 120_000,
  retry: 0,
};

const config: ViteUserConfig = defineConfig({
  test: {
    // The machines that this runs on are small, and so are the backends.
    maxWorkers: 2,
    projects: [
      {
        ...sources,
        test: {
          name: "unit",
          // Generous, as the machine may be busy; the whole project is to take less than 30 s.
          testTimeout: 20_000,
          include: [
            "packages/*/src/**/*.test.ts",
            // They play the backend themselves.
            "packages/*/test/fake-*/*.test.ts",
            "backends/**/*.test.ts",
            "scripts/**/*.test.ts",
          ],
          exclude: ["**/node_modules/**", "**/dist/**", "**/fixtures/**"],
        },
      },
      {
        ...sources,
        test: {
          ...live,
          name: "live",
          include: liveFolders.map((folder) => `${folder}/*.test.ts`),
          exclude: ["**/node_modules/**", "**/*.long.test.ts", "**/test/fake-*/**"],
        },
      },
      {
        ...sources,
        test: { ...live, name: "long", include: liveFolders.map((folder) => `${folder}/*.long.test.ts`) },
      },
    ],
  },
});
export default config;
