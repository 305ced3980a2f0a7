// What of a built site leads nowhere: VitePress looks at links between pages only, and before it renames any.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, posix, relative, sep } from 'node:path'

// fileOf is the file that a server with clean URLs answers a path with.
function fileOf(root, path) {
  for (const name of [path, `${path}.html`, join(path, 'index.html')]) {
    const file = join(root, name)
    if (existsSync(file) && statSync(file).isFile()) return file
  }
}

export function deadLinks(root) {
  const pages = new Map() // file: what it links to, and its anchors
  for (const name of readdirSync(root, { recursive: true })) {
    if (!name.endsWith('.html')) continue
    const tags = readFileSync(join(root, name), 'utf8').match(/<[a-z][^>]*>/g) ?? []
    const values = (attribute) => tags.flatMap((tag) => tag.match(new RegExp(` ${attribute}="([^"]*)"`))?.[1] ?? [])
    pages.set(join(root, name), { links: [...values('href'), ...values('src')], anchors: new Set(values('id')) })
  }
  const dead = []
  for (const [file, { links }] of pages) {
    const name = relative(root, file).split(sep).join('/')
    for (const link of new Set(links)) {
      if (/^[a-z]+:|^\/\//.test(link)) continue
      const [path, anchor] = decodeURI(link).replaceAll('&amp;', '&').split('#')
      const clean = path.replace(/\?.*/, '')
      const target = clean === '' ? file : fileOf(root, clean.startsWith('/') ? clean : posix.join(dirname(name), clean))
      if (!target || (anchor && pages.has(target) && !pages.get(target).anchors.has(anchor))) dead.push(`${name}: ${link}`)
    }
  }
  if (pages.size === 0) dead.push(`${root} has no page`)
  return dead
}
