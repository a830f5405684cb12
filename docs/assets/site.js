// Let the keyboard reach what scrolls sideways: wide tables.
const reach = () => {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap"))
    part.tabIndex = part.scrollWidth > part.clientWidth ? 0 : -1
}
addEventListener("load", reach)
addEventListener("resize", reach)
