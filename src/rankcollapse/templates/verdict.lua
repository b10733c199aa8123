-- A verdict keeps its colour in the PDF: [text]{.verdict .kind} becomes #verdict("kind")[text].
function Span(span)
  if FORMAT:match("typst") and span.classes:includes("verdict") then
    local open = pandoc.RawInline("typst", '#verdict("' .. span.classes[2] .. '")[')
    return { open, table.unpack(span.content), pandoc.RawInline("typst", "]") }
  end
end
