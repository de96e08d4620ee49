"""Stop words of some languages: words of grammar, of any length."""

from __future__ import annotations

from scirocco.models.lda.embedded import STOP_WORDS as _ENGLISH

_MORE_ENGLISH = """
a an am as at be by do go he i in is it me my no of on or so to up us we said say says also would
"""
_GERMAN = """
aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei beim
bin bis bist da dabei dadurch dafür dagegen daher dahin damit dann daran darauf daraus darin darum das dass davon
dazu dein deine dem den denn der des deshalb dessen die dies diese diesem diesen dieser dieses doch dort du durch
ein eine einem einen einer eines einige einigen einmal er es etwa etwas euch euer für gegen gewesen hab habe haben
hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im immer in ins ist ja jede jedem
jeden jeder jedes jedoch jene jetzt kann kein keine keinem keinen keiner können könnte machen man manche mehr mein
meine mich mir mit muss musste müssen nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen
seiner seit selbst sich sie sind so solche soll sollen sollte sondern sonst sowie über um und uns unser unsere unter
viel vom von vor wann war waren warum was weil weiter welche welchem welchen welcher welches wenn wer werde werden
wie wieder will wir wird wo worden wurde wurden würde würden zu zum zur zwar zwischen
"""
_FRENCH = """
a afin ai ainsi alors après as au aucun aussi autre autres aux avaient avait avant avec avoir ayant bien car ce ceci
cela celle celles celui cependant ces cet cette ceux chaque chez comme comment dans de depuis des deux donc dont du
elle elles en encore entre est et étaient était étant été être eu eux fait faire fois font furent fut hors il ils je
jusqu la là le les leur leurs lors lorsque lui ma mais me même mes moi moins mon ne ni non nos notre nous on ont ou
où par parce parmi pas pendant peu peut peuvent plus pour pourquoi puis qu quand que quel quelle quelles quels qui
quoi sa sans se sera serait ses si sien soit son sont sous suis sur ta te tes toi ton tous tout toute toutes très tu
un une vers voir vos votre vous
"""
_SPANISH = """
a al algo algunas algunos ante antes aquel aquella así aun aunque bajo bien cada casi como con contra cual cuales
cuando de del desde después donde dos durante e el él ella ellas ellos en entre era eran es esa esas ese eso esos
esta está estaba están estar estas este esto estos fue fueron ha había haber han hasta hay he la las le les lo los
más me mi mientras mis mucho muchos muy nada ni no nos nosotros o os otra otras otro otros para pero poco por porque
pues que qué quien quienes se sea según ser será si sí sido sin sobre solo sólo son su sus también tan tanto te
tener tenía ti tiene tienen todo todos tras tu tus un una unas uno unos usted ya yo
"""
_ITALIAN = """
a abbia ad agli ai al alcuni alla alle allo anche ancora avere aveva avevano ben che chi ci come con contro cosa
così cui da dagli dai dal dalla dalle dallo degli dei del della delle dello dentro di dopo dove due e è ed egli era
erano essere essi fa fatto fino fra fu furono già gli ha hai hanno ho i il in io la le lei li lo loro lui ma me mi
mia mio molto ne negli nei nel nella nelle nello noi non nostra nostro o ogni oltre per perché però più po poi prima
proprio qua quale quali quando quanto quella quelle quelli quello questa queste questi questo qui sarà se sei sembra
senza sia siamo sono sopra sotto sta stata stati stato su sua sue sugli sui sul sulla sulle suo suoi tra tu tutta
tutte tutti tutto un una uno vi voi
"""
_PORTUGUESE = """
a à ainda além algum alguma alguns ao aos apenas após aquela aquele aqui as às assim até bem cada com como contra da
das de dela dele deles depois desde dessa desse desta deste do dois dos e é ela elas ele eles em enquanto entre era
eram essa essas esse esses esta está estão estas estava este estes eu foi foram há isso isto já lhe lo mais mas me
mesmo meu minha muito muitos na nas não nem no nos nós nossa nosso num numa o onde os ou outra outras outro outros
para pela pelas pelo pelos per pode podem por porque qual quando que quem são se seja sem ser será seu seus só sobre
sua suas também tão tem têm ter tinha toda todas todo todos tudo um uma umas uns você vocês
"""
_DUTCH = """
aan al alle alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus een eens en er ge
geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je kan kon kunnen maar me
meer men met mij mijn moet na naar niet niets nog nu of om omdat onder ons ook op over reeds te tegen toch toen tot
u uit uw van veel voor want waren was wat werd wezen wie wil worden wordt zal ze zelf zich zij zijn zo zonder zou
"""
STOP_WORDS: dict[str, frozenset[str]] = {
    "english": _ENGLISH | frozenset(_MORE_ENGLISH.split()),
    "german": frozenset(_GERMAN.split()),
    "french": frozenset(_FRENCH.split()),
    "spanish": frozenset(_SPANISH.split()),
    "italian": frozenset(_ITALIAN.split()),
    "portuguese": frozenset(_PORTUGUESE.split()),
    "dutch": frozenset(_DUTCH.split()),
}
"""Stop words by language."""
