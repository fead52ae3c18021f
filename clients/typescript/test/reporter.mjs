// Says of every test how it ended, repeats what failed, and ends with the line that `cargo xtask test` counts by.

export default async function* reporter(source) {
  const failed = [];
  let passed = 0;
  let ignored = 0;
  for await (const { type, data } of source) {
    if (type === "test:stderr" || type === "test:stdout") yield data.message;
    if (type !== "test:pass" && type !== "test:fail") continue;
    // A suite or a file is no test; one that fails by itself has an error that is not that of a test in it.
    const children = data.details?.type === "suite" || data.details?.error?.failureType === "subtestsFailed";
    if (type === "test:pass" && children) continue;
    if (type === "test:fail" && data.details?.error?.failureType === "subtestsFailed") continue;
    const verdict = type === "test:fail" ? "FAILED" : data.skip !== undefined || data.todo !== undefined ? "ignored" : "ok";
    yield `test ${data.name} ... ${verdict}\n`;
    if (verdict === "ok") passed += 1;
    else if (verdict === "ignored") ignored += 1;
    else failed.push(data);
  }
  if (failed.length > 0) yield "\nfailures:\n";
  for (const { name, details } of failed) {
    const error = details?.error?.cause ?? details?.error;
    yield `---- ${name} ----\n${error?.stack ?? error}\n`;
  }
  const verdict = failed.length === 0 && passed > 0 ? "ok" : "FAILED";
  yield `\ntest result: ${verdict}. ${passed} passed; ${failed.length} failed; ${ignored} ignored;\n`;
}
