-- A verdict keeps its colour in the PDF: [text]{.verdict .kind} becomes #verdict("kind")[text].
function Span(span)
  if FORMAT:match("typst") and span.classes:includes("verdict") then
    local coloured = pandoc.Inlines({ pandoc.RawInline("typst", '#verdict("' .. span.classes[2] .. '")[') })
    coloured:extend(span.content)
    coloured:insert(pandoc.RawInline("typst", "]"))
    return coloured
  end
end

-- \|x\| says nothing of left and right, and typst then sets it as two relations: pair the bars into \lVert x \rVert.
function Math(math)
  math.text = math.text:gsub("\\|(.-)\\|", "\\lVert %1\\rVert ")
  return math
end
