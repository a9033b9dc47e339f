// A bundle answers for the server: what it holds stands in the page (ale.console.bundle).

const node = document.getElementById("kept");
export const KEPT = node ? JSON.parse(node.textContent) : null;

export function kept(path, asked) {
  if (path === "/api/runs") return { places: KEPT.run.name, runs: [KEPT.run] };
  const run = `/api/runs/${KEPT.run.place}`;
  if (path === run) return KEPT.run;
  if (path === `${run}/metrics`) return KEPT.metrics;
  if (path === `${run}/grid`) return KEPT.grid;
  if (path === `${run}/rollouts`) return rollouts(asked);
  const found = path === `${run}/rollout` ? KEPT.rollouts.find((each) => each.row.id === asked.id) : null;
  if (!found) return null;
  const start = Number(asked.start ?? 0);
  return { ...found, parts: found.parts.slice(start, start + Number(asked.limit)) };
}

function rollouts({ outcome, task = "*", file = "*", text, step, sort, start = 0, limit = 100 }) {
  const tasks = pattern(task), files = pattern(file);
  const fitting = KEPT.rows.filter((row) => (!outcome || row.outcome === outcome || (outcome === "failed" && ["unsolved", "errored"].includes(row.outcome)))
    && tasks.test(row.task) && files.test(row.file.replace(/\.[^.]*$/, "")) && (!step || row.step === Number(step)) && (!text || holds(row.id, text)));
  const by = { reward: (row) => row.reward, turns: (row) => row.turns, tokens: (row) => row.tokens, time: (row) => row.duration_s }[sort];
  if (by) fitting.sort((one, other) => (by(other) ?? -Infinity) - (by(one) ?? -Infinity));
  else if (sort === "newest") fitting.reverse();
  const end = start + limit;
  return { rows: fitting.slice(start, end), fitting: fitting.length, total: KEPT.rows.length, next: end < fitting.length ? end : null, left: 0, problems: [], damaged: 0 };
}

const holds = (id, text) => KEPT.rollouts.find((each) => each.row.id === id).parts.some((part) => part.text.toLowerCase().includes(text.toLowerCase()));

// A pattern as the server takes it: * and ?, and [x] for a character that is none of them.
function pattern(glob) {
  const plain = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${glob.replace(/\[(.)\]|[^]/g, (whole, one) => (one ? plain(one) : { "*": "[^]*", "?": "[^]" }[whole] ?? plain(whole)))}$`);
}
