// Turns results of matrix.mjs into a Markdown table: a row a scenario, a column a package.
const cell = (result) => {
  if (!result) return '–'
  if (result.absent) return result.absent
  return result.ok ? 'yes' : 'NO'
}

export const table = (runs) => {
  const sections = []
  for (const [title, mode] of [['By headers (`E2B_API_URL`, `E2B_SANDBOX_URL`)', 'url'], ['By host name over TLS (`E2B_DOMAIN`)', 'host']]) {
    for (const kind of ['e2b', '@e2b/cli']) {
      const columns = runs
        .filter((run) => run.mode === mode && run.package === kind)
        .sort((a, b) => a.version.localeCompare(b.version, 'en', { numeric: true }))
      if (columns.length === 0) continue
      const rows = [...new Set(columns.flatMap((run) => Object.keys(run.results)))]
      sections.push(
        [
          `| ${title}, ${kind} | ${columns.map((run) => run.version).join(' | ')} |`,
          `| --- |${' --- |'.repeat(columns.length)}`,
          ...rows.map((row) => `| ${row} | ${columns.map((run) => cell(run.results[row])).join(' | ')} |`),
        ].join('\n'),
      )
    }
  }
  return sections.join('\n\n') + '\n'
}
